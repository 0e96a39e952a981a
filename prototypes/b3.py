import sys
src=open('/tmp/a3/b1.py').read().split("def ad(ws,X)")[0]
src=src.replace("o=p.parse_args()","p.add_argument('--order',default='known');p.add_argument('--softs',default='1,.3,.1');p.add_argument('--obj',default='euclidean');o=p.parse_args()")
exec(src)
from dpfl_audit.attacks.inversion import simulated as S
from dpfl_audit.attacks.inversion.target import Target
from dpfl_audit.attacks.inversion.objective import Matching
from dpfl_audit.attacks.inversion.local_training import Walk
m=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=o.seed,widths=[1024]*3).eval()
for q,w in zip(m.parameters(),w0): q.data.copy_(w)
layout=Layout.of(m); names=[k for k,_ in m.named_parameters()]
W0=layout.join(dict(zip(names,w0))); UP=layout.join(dict(zip(names,[b-a for a,b in zip(w0,w1)])))
rec=Recipe('adam',1e-3,tuple(len(b) for b in batches),1)
tg=Target('t',W0,-UP,y,o.n,scale_known=True,recipe=rec,update=UP)
ma=Matching.of(o.obj,[tg])
own=torch.cat(list(batches)) if o.order=='known' else torch.randperm(o.n,generator=torch.Generator().manual_seed(5))
soft=torch.zeros(()); S.Walk=lambda r: Walk(r,soft)
sim=S.Simulated(m,layout,tg,y[own][None],ma,0.)
def tvl(im): return (im[...,1:]-im[...,:-1]).abs().mean()+(im[...,1:,:]-im[...,:-1,:]).abs().mean()
if o.order=='known': print('at truth',sim(x[own][None])[0].item())
X=torch.load(o.start) if o.start else (.5+.25*torch.randn(x.shape,generator=torch.Generator().manual_seed(1))).clamp(0,1)
# scale per tensor of the batch gradient
gs=torch.autograd.grad(F.cross_entropy(m(X),y),list(m.parameters())); sc=layout.join(dict(zip(names,[torch.full_like(g,g.square().mean().sqrt().item()) for g in gs])))
softs=[float(q) for q in o.softs.split(',')]
X=X[own]; m1=torch.zeros_like(X); m2=torch.zeros_like(X); t0=time.process_time()
inv=own.argsort()
for k in range(o.its):
    soft=sc*softs[min(len(softs)-1,int(k/o.its*len(softs)))]
    L,g=sim(X[None]); g=g[0]; 
    P=X.clone().requires_grad_(); tv=o.tv*tvl(P); g=g+torch.autograd.grad(tv,P)[0]
    g=g.sign(); m1.lerp_(g,.1); m2.mul_(.999).addcmul_(g,g,value=.001)
    st=o.lr*(1 if k/o.its<.4 else .3 if k/o.its<.7 else .1)
    X=(X-st/(1-.9**(k+1))*m1/((m2/(1-.999**(k+1))).sqrt()+1e-8)).clamp(0,1)
    if k%25==24 or k==o.its-1:
        d,r=score(X[inv]); mg=d-cs[best]; se=mg.std()/len(mg)**.5
        bd=[round(q.mean().item(),1) for q in d[own].split(o.bs)] if o.order=='known' else ''
        print(o.order,o.obj,k,f"loss {L.item():.4f} psnr {d.mean():.2f} margin {mg.mean():.2f} +-{1.96*se:.2f} reid {r.share:.2f} chance {r.chance:.2f} {time.process_time()-t0:.0f}s",bd,flush=True)
if o.save: torch.save(X[inv],o.save)
