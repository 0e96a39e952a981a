import sys; fil=sys.argv[1]; nre=int(sys.argv[2]); sys.argv=['p3',fil]
sys.path.insert(0,'/tmp/a3')
exec(open('/tmp/a3/p2.py').read().split("t0=time.process_time()\nX=d['X']")[0])
from rows import *
sizes=[8,8,8]; X=torch.cat(d['X']); 
P0a=torch.cat([w0[W],w0[b][:,None]],1); Ta=(torch.cat([w1[W],w1[b][:,None]],1)-P0a)/1e-3
# orthonormalise spans for conditioning
Q=torch.cat([torch.linalg.qr(q.T)[0].T*q.shape[1]**.5 for q in d['X']])
g=torch.Generator().manual_seed(3); pix=torch.randperm(3073,generator=g)[:500]
Qs=Q[:,pix]; Ts=Ta[:,pix]
t0=time.process_time(); best=None; fb=torch.full((1024,),9e9); Ab=torch.zeros(1024,24)
mm=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
opt=torch.optim.Adam(mm.parameters(),lr=1e-3); GT=[]
for kk,bt in enumerate(batches):
    q=list(mm.parameters()); opt.zero_grad(); F.cross_entropy(mm(x[bt]),y[bt]).backward(); GT.append(torch.cat([q[0].grad,q[1].grad[:,None]],1).clone()); opt.step()
def rep(tag,A):
    print(tag,'resid',[round(q,4) for q in fb.quantile(torch.tensor([.05,.25,.5,.75,.95])).tolist()],[ (F.cosine_similarity(A[:,8*k:8*k+8]@Q[8*k:8*k+8],GT[k],dim=1)).quantile(torch.tensor([.05,.25,.5])).tolist() for k in range(3)],f"{time.process_time()-t0:.0f}s",flush=True)
for re in range(nre):
    A=torch.randn(1024,24,generator=g)/8**.5
    for s,it in ((1.,8),(.3,6),(.1,6),(.03,6)):
        A,f=lm_rows(recipe,Ts,Qs,sizes,A,s,it)
    A=A/ A.square().mean(1,keepdim=True).sqrt()/8**.5
    A,f=lm_rows(recipe,Ts,Qs,sizes,A,.01,6)
    ok=f<fb; fb=torch.where(ok,f,fb); Ab=torch.where(ok[:,None],A,Ab)
    rep(f're {re} improved {ok.float().mean():.2f}',Ab)
# half residual vs true
for thr in (1.5,2,3,5):
    sel=fb<thr*fb.median(); print(thr,sel.sum().item(),[ (F.cosine_similarity(Ab[:,8*k:8*k+8]@Q[8*k:8*k+8],GT[k],dim=1))[sel].quantile(torch.tensor([.02,.05,.25,.5])).tolist() for k in range(3)])
torch.save(dict(Q=Q,A=Ab,f=fb,batches=batches),'/tmp/a3/rows.pt')
