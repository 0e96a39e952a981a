import sys; sys.path.insert(0,'/tmp/adam'); sys.path.insert(0,'/tmp/wt/adam/benchmarks')
import adam_spans as S, torch, time
from dpfl_audit.attacks.inversion import by_step
from dpfl_audit.attacks.inversion.step_factors import StepFactors
from dpfl_audit.attacks.inversion.blind import blind_columns
torch.set_num_threads(1); torch.set_flush_denormal(True)
module,target,x,y,oth=S.workload(100,25)
d=torch.load('/tmp/a3/altb.pt'); f=StepFactors(target.recipe,d['A'].split(25,1),d['Q'].split(25),d['f'])
old=by_step._refitted
def ref(*a):
    r=old(*a); print('   right',r[2],f"{time.process_time()-t0:.0f}s",flush=True); return r
by_step._refitted=ref
ob=by_step.blind_columns
def bc(*a):
    c=ob(*a); print('  columns',len(c),f"{time.process_time()-t0:.0f}s",flush=True); return c
by_step.blind_columns=bc
t0=time.process_time()
X,Y=by_step.images_of(f,module,target,target.labels,S.SHAPE,0)
from scipy.optimize import linear_sum_assignment
for k in range(4):
    p=S.psnr(X[25*k:25*k+25],x[25*k:25*k+25]); print(k,[round(q,1) for q in p.tolist()],p.mean().item(), 'labels overlap',sum(min((Y[25*k:25*k+25]==c).sum().item(),(y[25*k:25*k+25]==c).sum().item()) for c in range(10)))
print(S.psnr(X,x).mean(),f"{time.process_time()-t0:.0f}s")
torch.save((X,Y),'/tmp/a3/resb.pt')
