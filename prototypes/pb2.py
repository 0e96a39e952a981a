import sys; sys.path.insert(0,'/tmp/adam'); sys.path.insert(0,'/tmp/a3')
from common import *
from rows import *
torch.set_num_threads(1)
n,bs=100,25; data=photos.load(classes=10,samples=200,seed=0)
m=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
x,y=data.inputs[:n],data.targets[:n]; W0=[q.detach().clone() for q in m.parameters()]
opt=torch.optim.Adam(m.parameters(),lr=1e-3); batches=torch.randperm(n,generator=torch.Generator().manual_seed(0)).split(bs); GT=[]
for bt in batches:
    opt.zero_grad(); F.cross_entropy(m(x[bt]),y[bt]).backward(); q=list(m.parameters()); GT.append(torch.cat([q[0].grad,q[1].grad[:,None]],1).clone()); opt.step()
q=list(m.parameters()); Ta=torch.cat([q[0]-W0[0],(q[1]-W0[1])[:,None]],1).detach()/1e-3
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
def with1(im): return torch.cat([((im-mean)/std).flatten(1),torch.ones(len(im),1)],1)
recipe=Recipe('adam',1.0,(bs,)*4,1); sizes=[bs]*4; K=4
spans=torch.load('/tmp/a3/spans_b.pt')
if len(sys.argv)>1 and sys.argv[1]=='truth': spans=[with1(x[b]) for b in batches]
Q=torch.cat([torch.linalg.qr(s.T)[0].T*3073**.5 for s in spans])
trs=[with1(x[bt]) for bt in batches]; oth=with1(data.inputs[100:125])
def tspans(Q):
    out=[]; tr=torch.cat(trs); s=torch.ones(3073); Bs=[torch.linalg.qr(Q[bs*k:bs*k+bs].T.double())[0].float() for k in range(K)]
    def one(s):
        pr=torch.cat([((trs[k]*s)@Bs[k])@Bs[k].T for k in range(K)]); return pr,[round((-10*(((pr/s-tr)[bs*k:bs*k+bs])[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1).log10()).mean().item(),1) for k in range(K)]
    pr,a=one(s)
    for it in range(30):
        s=(pr*tr).sum(0)/tr.square().sum(0); s=s/s.mean(); pr,b=one(s)
    return a,b
g=torch.Generator().manual_seed(3); t0=time.process_time()
fb=torch.full((1024,),9e9); Ab=torch.zeros(1024,n)
def rep(tag): print(tag,*tspans(Q),'resid',[round(q,4) for q in fb.quantile(torch.tensor([.05,.25,.5,.75,.95])).tolist()],[ [round(v,3) for v in (F.cosine_similarity(Ab[:,bs*k:bs*k+bs]@Q[bs*k:bs*k+bs],GT[k],dim=1)).quantile(torch.tensor([.05,.25,.5])).tolist()] for k in range(K)],f"{time.process_time()-t0:.0f}s",flush=True)
def rows_lm(A,soft,it,pix,damp=1e-2):
    out=[lm_rows(recipe,Ta[c][:,pix],Q[:,pix],sizes,A[c],soft,it,damp) for c in torch.arange(1024).split(128)]
    return torch.cat([a for a,_ in out]),torch.cat([f for _,f in out])
def nA(A): return A/A.square().mean(1,keepdim=True).sqrt()/bs**.5

d0=torch.load('/tmp/a3/altb.pt'); Q,Ab,fb=d0['Q'],d0['A'],d0['f']
for cyc in range(int(sys.argv[2])):
    fb=rows_lm(Ab,.03,0,torch.arange(0,3073,4))[1]; rep('cycle')
    for re in range(1):
        pix=torch.randperm(3073,generator=g)[:700]
        A=torch.randn(1024,n,generator=g)/bs**.5
        for s,it in ((1.,6),(.3,4),(.1,4)): A,f=rows_lm(A,s,it,pix)
        A,f=rows_lm(nA(A),.03,4,pix)
        ok=f<fb; fb=torch.where(ok,f,fb); Ab=torch.where(ok[:,None],A,Ab); rep(f'restart {re}')
    for rnd in range(8):
        soft=[.1,.1,.05,.03,.03,.03,.02,.01][rnd]
        good=(fb<4*fb.median()).nonzero().flatten(); new=[]
        for ch in torch.arange(3073).split(150):
            q_,_=lm_rows(recipe,Ta[good][:,ch].T.contiguous(),Ab[good].T.contiguous(),sizes,Q[:,ch].T.contiguous(),soft,3,1e-3); new.append(q_.T)
        new=torch.cat(new,1); new=new*((Q*new).sum(0)/new.square().sum(0).clamp_min(1e-9))
        o1,o2=[],[]
        for k in range(K):
            q_,rr=torch.linalg.qr(new[bs*k:bs*k+bs].T); o1.append(q_.T*3073**.5); o2.append(Ab[:,bs*k:bs*k+bs]@rr.T/3073**.5)
        Q=torch.cat(o1); Ab=nA(torch.cat(o2,1)); pix=torch.randperm(3073,generator=g)[:900]
        Ab,fb=rows_lm(Ab,soft,3,pix,1e-3); rep(f'round {rnd} {soft}')
        torch.save(dict(Q=Q,A=Ab,f=fb),'/tmp/a3/altb.pt')
