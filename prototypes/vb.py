import sys; sys.path.insert(0,'/tmp/adam')
from common import *
torch.set_num_threads(1)
from dpfl_audit.attacks.inversion import by_step
from dpfl_audit.attacks.inversion.step_factors import StepFactors
from dpfl_audit.attacks.inversion.target import Target
data,m,layout,w0,w1,x,y,batches=workload(24,8)
fl=sys.argv[1]
if 'alt' in fl:
    r=torch.load(fl); f=StepFactors(Recipe('adam',1e-3,(8,8,8),1),r['A'].split(8,1),r['Q'].split(8),r['f'])
else: f=torch.load(fl,weights_only=False)
by_step.step_factors=lambda *a: f
layout=Layout.of(m); a=layout.join(w0); b=layout.join(w1)
t=Target('t',a,a-b,y,24,recipe=Recipe('adam',1e-3,(8,8,8),1),update=b-a)
print(by_step.readable(m,t)); t0=time.process_time()
X,Y=by_step.images_by_step(m,t,y,SHAPE,0)
d,j=psnr(X,x); print([round(q,1) for q in d.tolist()],d.mean(),'labels right',(Y==y[j]).sum().item(),f"{time.process_time()-t0:.0f}s")
torch.save((X,Y),'/tmp/a3/res.pt')
