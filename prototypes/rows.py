import torch
from dpfl_audit.attacks.inversion.local_training import linearised, Walk
def jac(recipe,A,Xs,soft,sizes):
    """prediction (R,P), J (R,P,N) of the total with respect to the row coefficients; diagonal derivative per step"""
    G=[a@q for a,q in zip(A.split(sizes,1),Xs)]
    tot,back=linearised(recipe,G,soft); D=back(torch.ones_like(tot))
    return tot,D
def lm_rows(recipe,T,X,sizes,A,soft,iters=20,damp=1e-2):
    """batched Levenberg-Marquardt over rows. T (R,P), X (N,P), A (R,N)."""
    Xs=X.split(sizes); N=len(X); R=len(T); lam=torch.full((R,),damp)
    tot,D=jac(recipe,A,Xs,soft,sizes); res=(T-tot); f=res.square().mean(1)
    eye=torch.eye(N)
    for it in range(iters):
        Jm=torch.empty(R,N,N); v=torch.empty(R,N); i=0
        J=torch.cat([d[:,None,:]*q[None] for d,q in zip(D,Xs)],1)  # R,N,P
        Jm=J@J.transpose(1,2); v=(J@res[...,None])[...,0]
        tr=Jm.diagonal(dim1=1,dim2=2).mean(1)
        dA=torch.linalg.solve(Jm+(lam*tr+1e-12)[:,None,None]*eye,v)
        A2=A+dA; tot2,D2=jac(recipe,A2,Xs,soft,sizes); r2=T-tot2; f2=r2.square().mean(1)
        ok=f2<f
        A=torch.where(ok[:,None],A2,A); res=torch.where(ok[:,None],r2,res); f=torch.where(ok,f2,f); D=[torch.where(ok[:,None],b,a) for a,b in zip(D,D2)]
        lam=torch.where(ok,lam/3,lam*4).clamp(1e-7,1e3)
    return A,f
