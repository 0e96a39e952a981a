import sys; sys.path.insert(0,'/tmp/adam')
from common import *
import argparse
from dpfl_audit.metrics.reidentification import line_up
from dpfl_audit.metrics.controls import control_images
from dpfl_audit.attacks.inversion.optimise import step_size
torch.set_num_threads(1)
p=argparse.ArgumentParser()
p.add_argument('--mode',default='mean'); p.add_argument('--along',default='0.0'); p.add_argument('--its',type=int,default=100)
p.add_argument('--tv',type=float,default=.01); p.add_argument('--n',type=int,default=100); p.add_argument('--bs',type=int,default=25); p.add_argument('--seed',type=int,default=0)
p.add_argument('--start',default=''); p.add_argument('--save',default=''); p.add_argument('--lr',type=float,default=.1); p.add_argument('--spread',type=float,default=1.); p.add_argument('--loss',default='cos'); p.add_argument('--first',type=int,default=0)
o=p.parse_args()
import os
cache=f'/tmp/a3/w{o.n}_{o.bs}_{o.seed}.pt'
def load():
    data=photos.load(classes=10,samples=3*o.n if o.n>=100 else 200,seed=o.seed)
    m=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=o.seed,widths=[1024]*3).eval()
    x,y=data.inputs[:o.n],data.targets[:o.n]; ps=list(m.parameters()); w0=[q.detach().clone() for q in ps]
    opt=torch.optim.Adam(ps,lr=1e-3); batches=[]
    for b in torch.randperm(o.n,generator=torch.Generator().manual_seed(o.seed)).split(o.bs):
        batches.append(b); opt.zero_grad(); F.cross_entropy(m(x[b]),y[b]).backward(); opt.step()
    return data,w0,[q.detach().clone() for q in ps],x,y,batches
data,w0,w1,x,y,batches=load()
K=len(batches)
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
T=[-(b-a)/1e-3 for a,b in zip(w0,w1)]
rest=data.inputs[o.n:]; ry=data.targets[o.n:]
lu=line_up(x,rest,y,ry)
def score(X):
    e=(X-x).square().flatten(1).mean(1)
    # match within labels by psnr
    d=-10*(X[:,None]-x[None]).square().flatten(2).mean(2).clamp_min(1e-10).log10()
    d=d.masked_fill(y[:,None]!=y[None],-100.); i,j=linear_sum_assignment(d.numpy(),maximize=True)
    r=lu.pick(X,y)
    return d[i,j], r
ctr=control_images(x.shape,rest,None,y,ry)
cs={k:score(v.clone())[0] for k,v in ctr.items()}; best=max(cs,key=lambda k:cs[k].mean()); print('controls',{k:round(v.mean().item(),2) for k,v in cs.items()})
def ad(ws,X):
    """first moments and second central moments of per-image gradients, differentiable"""
    a=((X-mean)/std).flatten(1); acts=[a]; masks=[]
    L=len(ws)//2
    for l in range(L):
        z=a@ws[2*l].T+ws[2*l+1]
        if l<L-1: masks.append((z>0).float()); a=z*masks[-1]; acts.append(a)
    d=z.softmax(1)-F.one_hot(y,10).float(); ds=[d]
    for l in range(L-1,0,-1):
        d=(d@ws[2*l])*masks[l-1]; ds.append(d)
    return acts,ds[::-1]
pts=[[a+float(f)*(b-a) for a,b in zip(w0,w1)] for f in o.along.split(',')]
nT=sum(t.square().sum() for t in T)
def objective(X):
    U=[0.]*len(T)
    for ws in pts:
        acts,ds=ad(ws,X); n=len(X)
        for l,(a,d) in enumerate(zip(acts,ds)):
            for q,(g,s) in enumerate(((d.T@a/n, (d.square().T@a.square())/n if o.mode!='mean' else None),(d.mean(0),d.square().mean(0)))):
                if o.mode=='mean': u=g
                else:
                    var=(s-g*g).clamp_min(0)*(o.spread/o.bs)
                    u=g/(g*g+var+1e-16).sqrt()
                U[2*l+q]=U[2*l+q]+u
    if o.loss=='cos':
        dot=sum((u*t).sum() for u,t in zip(U,T)); sq=sum(u.square().sum() for u in U)
        return 1-dot/(sq*nT).sqrt()
    U=[u*(K/len(pts)) for u in U]
    if o.loss=='l2': return sum((u-t).square().sum() for u,t in zip(U,T))/nT
    return sum((u-t).abs().sum() for u,t in zip(U,T))/sum(t.abs().sum() for t in T)
def tvl(im): return (im[...,1:]-im[...,:-1]).abs().mean()+(im[...,1:,:]-im[...,:-1,:]).abs().mean()
print('at truth',objective(x).item(),'gray',objective(.5+.01*torch.randn(x.shape)).item())
X=torch.load(o.start) if o.start else (.5+.25*torch.randn(x.shape,generator=torch.Generator().manual_seed(1))).clamp(0,1)
m1=torch.zeros_like(X); m2=torch.zeros_like(X); t0=time.process_time()
for k in range(o.its):
    P=X.clone().requires_grad_(); L=objective(P)+o.tv*tvl(P); (g,)=torch.autograd.grad(L,P)
    g=g.sign(); m1.lerp_(g,.1); m2.mul_(.999).addcmul_(g,g,value=.001)
    X=(X-step_size(o.lr,k,o.its)/(1-.9**(k+1))*m1/((m2/(1-.999**(k+1))).sqrt()+1e-8)).clamp(0,1)
    if k%25==24 or k==o.its-1:
        d,r=score(X); mg=d-cs[best]; se=mg.std()/len(mg)**.5
        print(o.mode,o.along,k,f"loss {L.item():.4f} psnr {d.mean():.2f} margin {mg.mean():.2f} +-{1.96*se:.2f} reid {r.share:.2f} chance {r.chance:.2f} {time.process_time()-t0:.0f}s",flush=True)
if o.save: torch.save(X,o.save)
