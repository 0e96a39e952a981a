import sys; sys.path.insert(0,'/tmp/adam')
src=open('/tmp/adam/t5.py').read()
import numpy as np, argparse
from common import *
from scipy.optimize import minimize
from dpfl_audit.attacks.inversion.local_training import Walk
from dpfl_audit.attacks.inversion.row_space import row_space
from dpfl_audit.attacks.inversion.blind import blind_columns
torch.set_num_threads(1)
p=argparse.ArgumentParser(); p.add_argument('file'); p.add_argument('--rels',default='.1,.15,.2,.25,.3,.4'); p.add_argument('--lam',type=float,default=1e-6); p.add_argument('--pen',type=float,default=1.); p.add_argument('--rounds',type=int,default=6); p.add_argument('--its',type=int,default=50); p.add_argument('--soft',type=float,default=.3); p.add_argument('--save',default=''); p.add_argument('--box',type=float,default=.1); p.add_argument('--oracle',type=int,default=0)
o=p.parse_args(); d=torch.load(o.file)
data,m,layout,w0,w1,x,y,batches=workload(24,8)
names=list(w0); W,b=names[0],names[1]; rows=d['rows']; R=len(rows)
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
P0=torch.cat([w0[W],w0[b][:,None]],1)[rows]; T=(torch.cat([w1[W],w1[b][:,None]],1)[rows]-P0)/1e-3
K=len(batches); recipe=Recipe('adam',1.0,tuple(len(q) for q in batches),1)
k=torch.arange(32.); C=torch.cos(torch.pi*(k[None]+.5)*k[:,None]/32)*(2/32)**.5; C[0]/=2**.5
fr=(k[:,None]**2+k[None]**2).sqrt(); S=1/(1+fr)
O=torch.tensor([[1,1,1],[1,0,-1],[1,-2,1.]]); O/=O.norm(dim=1,keepdim=True); cs=torch.tensor([1.,.3,.15])
S=S[None]*cs[:,None,None]; S=S*(.25*(3072)**.5/S.norm())
def to_img(z): return .5+C.T@torch.einsum('nouv,oc->ncuv',z*S,O)@C
def to_z(im): return torch.einsum('ncuv,oc->nouv',C@(im-.5)@C.T,O)/S
def back_img(gi): return torch.einsum('ncuv,oc->nouv',C@gi@C.T,O)*S
ones=[torch.ones(len(q),1) for q in batches]
def with1(im): return torch.cat([((im-mean)/std).flatten(1),torch.ones(len(im),1)],1)
def fit(Z,A,off,soft,its,pen):
    params=Z+A; sizes=[q.numel() for q in params]; shapes=[q.shape for q in params]
    def loss(v):
        ps=[c.view(s) for c,s in zip(v.split(sizes),shapes)]; Z,A=ps[:K],ps[K:]
        im=[to_img(z) for z in Z]; X=[with1(q) for q in im]
        tot,back=linearised(recipe,[a@q for a,q in zip(A,X)],soft)
        r=tot-T; L=r.square().mean(); ds=back(2*r/r.numel())
        gZ=[]; gA=[]
        for a,dd,z,i,q,of in zip(A,ds,Z,im,X,off):
            out=(i-i.clamp(0,1)); L=L+o.box*out.square().sum()/3072/24
            gZ.append(back_img((a.T@dd)[:,:-1].view(-1,*SHAPE)/std+2*o.box*out/3072/24)+2*o.lam*z)
            L=L+o.lam*z.square().sum()+pen*(of*a.square()).sum()/R/24
            gA.append(dd@q.T+2*pen*of*a/R/24)
        return L,torch.cat([q.flatten() for q in gZ+gA])
    def f(z):
        L,g=loss(torch.from_numpy(z).float()); return L.item(),g.double().numpy()
    r=minimize(f,torch.cat([q.flatten() for q in params]).double().numpy(),jac=True,method='L-BFGS-B',options=dict(maxiter=its,maxcor=10))
    v=torch.from_numpy(r.x).float(); ps=[c.view(s) for c,s in zip(v.split(sizes),shapes)]
    return ps[:K],ps[K:],r.fun
def planes(Z,A):
    walk=Walk(recipe); cur=P0.clone(); out=[]
    for z,a in zip(Z,A):
        out.append(cur); cur=cur+1e-3*walk.forward(a@with1(to_img(z)))
    return out
def report(tag,Z,A,off):
    Ps=planes(Z,A); out=[]; al=[]
    for kk in range(K):
        im=to_img(Z[kk]); dd,j=psnr(im.clamp(0,1),x[batches[kk]]); al.append(dd)
        X=with1(im); tr=with1(x[batches[kk]]); Q=torch.linalg.qr(X.T.double())[0].float(); e=(((tr@Q)@Q.T-tr)[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1)
        act=tr@Ps[kk].T>0
        ma=[(((off[kk].T[i]>.5)==~act[jj]).float().mean().item()) for i,jj in enumerate(j)]
        out.append(f"{dd.mean():.1f}[{' '.join(f'{q:.0f}' for q in dd)}] span {(-10*e.log10()).mean():.1f} mask {np.mean(ma):.2f}")
    print(tag,out,f"all {torch.cat(al).mean():.2f} {time.process_time()-t0:.0f}s",flush=True)
t0=time.process_time()
X=d['X']; A=[q.clone() for q in d['A']]
sc=sum((a@q).square().mean(1) for a,q in zip(A,X)).sqrt()[:,None]
print('row scale',sc.quantile(torch.tensor([.05,.5,.95])))
A=[a/sc*1 for a in A]
Z=[to_z((q[:,:-1].view(-1,*SHAPE)*std+mean)) for q in X]
off=[torch.zeros(R,len(q)) for q in batches]
report('start',Z,A,off)
done=[0]*K
for rnd in range(o.rounds):
    Ps=planes(Z,A)
    for kk in range(K):
        n=len(batches[kk]); G=A[kk]@with1(to_img(Z[kk]))
        if done[kk]<n:
            gn=G/G.square().mean(1,keepdim=True).sqrt(); best=None
            for r in [float(q) for q in o.rels.split(',')]:
                sp=row_space(gn,n,r*gn.square().mean().sqrt().item()); c=blind_columns(sp,Ps[kk].double()@sp.right,0)
                if best is None or len(c)>len(best[0]): best=(c,sp)
                if len(c)==n: break
            c,sp=best; print('  step',kk,'found',len(c),flush=True)
            if len(c)>done[kk]:
                q=c.mix; full=torch.cat([q,torch.linalg.svd(q,full_matrices=True)[2][len(c):]])  # n x n
                # G_n = left diag right^T ; E=left full^T (R x n) ; X = inv(full^T) diag right^T
                Xn=torch.linalg.solve(full.T,torch.diag(sp.values)@sp.right.T)
                s=Xn[:,-1:]; s=torch.where(s.abs()<1e-2*Xn.square().mean(1,keepdim=True).sqrt(),1e-2*Xn.square().mean(1,keepdim=True).sqrt(),s)
                Xn=(Xn/s).float(); im=Xn[:,:-1].view(-1,*SHAPE)*std+mean
                off[kk]=torch.zeros(R,n); off[kk][:,:len(c)]=c.zero.T.float()
                im=im.clamp(-.5,1.5); Z[kk]=to_z(im)
                A[kk]=torch.linalg.lstsq(with1(im).T,G.T).solution.T.contiguous()
                done[kk]=len(c)
        elif rnd:
            out=with1(to_img(Z[kk]))@Ps[kk].T; off[kk]=(out<0).float().T.contiguous()
    report(f'round {rnd} before',Z,A,off)
    Z,A,L=fit(Z,A,off,o.soft,o.its,o.pen); report(f'round {rnd} loss {L:.4f}',Z,A,off)
if o.save: torch.save(dict(X=[with1(to_img(z)) for z in Z],A=A,rows=rows,batches=batches,off=off),o.save)
