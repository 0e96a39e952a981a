import sys; fil=sys.argv[1]; rf=sys.argv[2]; rnds=int(sys.argv[3]); softs=[float(q) for q in sys.argv[4].split(',')]; gauge=int(sys.argv[5]); sys.argv=['p3',fil]
sys.path.insert(0,'/tmp/a3')
exec(open('/tmp/a3/p2.py').read().split("t0=time.process_time()\nX=d['X']")[0])
from rows import *
r=torch.load(rf); Q,A,f=r['Q'],r['A'],r['f']; sizes=[8,8,8]
P0a=torch.cat([w0[W],w0[b][:,None]],1); Ta=(torch.cat([w1[W],w1[b][:,None]],1)-P0a)/1e-3
trs=[with1(x[bt]) for bt in batches]
mm=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
opt=torch.optim.Adam(mm.parameters(),lr=1e-3); GT=[]
for kk,bt in enumerate(batches):
    q=list(mm.parameters()); opt.zero_grad(); F.cross_entropy(mm(x[bt]),y[bt]).backward(); GT.append(torch.cat([q[0].grad,q[1].grad[:,None]],1).clone()); opt.step()
def spans(Q):
    out=[]
    for k,tr in enumerate(trs):
        B=torch.linalg.qr(Q[8*k:8*k+8].T.double())[0].float(); e=(((tr@B)@B.T-tr)[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1); out.append(round((-10*e.log10()).mean().item(),1))
    return out
def tspans(Q):
    # truth in the best pixel gauge: alternate projection of truth*s on span of Q
    out=[]
    tr=torch.cat(trs); s=torch.ones(3073)
    Bs=[torch.linalg.qr(Q[8*k:8*k+8].T.double())[0].float() for k in range(3)]
    for it in range(60):
        pr=torch.cat([((trs[k]*s)@Bs[k])@Bs[k].T for k in range(3)])
        s=(pr*tr).sum(0)/tr.square().sum(0); s=s/s.mean()
    for k in range(3):
        e=(((pr/s-tr)[8*k:8*k+8])[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1); out.append(round((-10*e.log10()).mean().item(),1))
    return out,round(s.std().item(),3)
def rep(tag,Q,A,f): print(tag,'spans',spans(Q),'gauged',tspans(Q),'resid',[round(q,5) for q in f.quantile(torch.tensor([.25,.5,.75,.95])).tolist()],[ [round(q,3) for q in (F.cosine_similarity(A[:,8*k:8*k+8]@Q[8*k:8*k+8],GT[k],dim=1)).quantile(torch.tensor([.05,.25,.5])).tolist()] for k in range(3)],f"{time.process_time()-t0:.0f}s",flush=True)
t0=time.process_time(); g=torch.Generator().manual_seed(4)
rep('start',Q,A,f)
def norm(Q,A):
    out=[];An=[]
    for k in range(3):
        q,rr=torch.linalg.qr(Q[8*k:8*k+8].T); out.append(q.T*3073**.5); An.append(A[:,8*k:8*k+8]@rr.T/3073**.5)
    A=torch.cat(An,1); return torch.cat(out), A/A.square().mean(1,keepdim=True).sqrt()/8**.5
for rnd in range(rnds):
    soft=softs[min(rnd,len(softs)-1)]
    good=(f<4*f.median()).nonzero().flatten(); pick=good[torch.randperm(len(good),generator=g)[:640]]
    new=[]
    for ch in torch.arange(3073).split(400):
        q,_=lm_rows(recipe,Ta[pick][:,ch].T.contiguous(),A[pick].T.contiguous(),sizes,Q[:,ch].T.contiguous(),soft,4,1e-3); new.append(q.T)
    new=torch.cat(new,1)
    if gauge: new=new*((Q*new).sum(0)/new.square().sum(0).clamp_min(1e-9))
    Q,A=norm(new,A)
    pix=torch.randperm(3073,generator=g)[:800]
    A,f=lm_rows(recipe,Ta[:,pix],Q[:,pix],sizes,A,soft,4,1e-3)
    rep(f'round {rnd} soft {soft}',Q,A,f)
torch.save(dict(Q=Q,A=A,f=f,batches=batches),'/tmp/a3/alt.pt')
