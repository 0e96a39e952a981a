# validates the module on (a)
import sys; sys.path.insert(0,'/tmp/adam')
from common import *
torch.set_num_threads(1)
from dpfl_audit.attacks.inversion.step_factors import step_factors
data,m,layout,w0,w1,x,y,batches=workload(24,8)
names=list(w0); W,b=names[0],names[1]
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
U=torch.cat([w1[W]-w0[W],(w1[b]-w0[b])[:,None]],1)
t0=time.process_time(); f=step_factors(U,Recipe('adam',1e-3,(8,8,8),1),mean,std,SHAPE,int(sys.argv[1])); print(f"{time.process_time()-t0:.0f}s CPU",f.rest.quantile(torch.tensor([.25,.5,.75,.95])))
torch.save(f,'/tmp/a3/f%s.pt'%sys.argv[1])
for k,bt in enumerate(batches):
    tr=torch.cat([((x[bt]-mean)/std).flatten(1),torch.ones(8,1)],1); B=torch.linalg.qr(f.inputs[k].T.double())[0].float(); e=(((tr@B)@B.T-tr)[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1); print(k,(-10*e.log10()).mean())
