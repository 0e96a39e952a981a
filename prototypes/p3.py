import sys; sys.argv=['p3',sys.argv[1]]
exec(open('/tmp/a3/p2.py').read().split("t0=time.process_time()\nX=d['X']")[0])
X=d['X']; A=d['A']
sc=sum((a@q).square().mean(1) for a,q in zip(A,X)).sqrt()[:,None]
G=[a@q for a,q in zip(A,X)]
for s in (0,1e-3,1e-2):
    res=(moved_:=linearised(recipe,[g/sc for g in G],s)[0]-T).square().mean(1)
    print('hard' ,s,'residual quantiles',[round(q,4) for q in res.quantile(torch.tensor([.05,.25,.5,.75,.95])).tolist()])
# truth per row
Ps=[]
mm=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
opt=torch.optim.Adam(mm.parameters(),lr=1e-3)
for kk,bt in enumerate(batches):
    q=list(mm.parameters()); cur=torch.cat([q[0],q[1][:,None]],1)[rows].detach().clone()
    opt.zero_grad(); F.cross_entropy(mm(x[bt]),y[bt]).backward()
    Gt=torch.cat([q[0].grad,q[1].grad[:,None]],1)[rows].clone(); opt.step()
    tr=with1(x[bt]); act=(tr@cur.T>0)
    cosrow=F.cosine_similarity(G[kk],Gt,dim=1)
    print('step',kk,'row cos with true gradient',[round(q,3) for q in cosrow.quantile(torch.tensor([0,.05,.1,.25,.5,.75,.95])).tolist()],'zero rows',(Gt.norm(dim=1)==0).sum().item())
    rs=torch.stack([cosrow,-res]).cpu().numpy(); print('   spearman-ish corr',np.corrcoef(np.argsort(np.argsort(rs[0])),np.argsort(np.argsort(rs[1])))[0,1])
    gn=G[kk]/G[kk].square().mean(1,keepdim=True).sqrt()
    E=torch.linalg.lstsq(tr.T.double(),gn.T.double()).solution
    for sel,nm in ((res<1e9,'all'),(res<res.median(),'better half'),(cosrow>.99,'cos>.99')):
        a=act[:,sel]; e=E[:,sel]
        print('   ',nm,sel.sum().item(),'off/on rms',[round(q,3) for q in ((e.square()*~a).sum(1)/(~a).sum(1)/((e.square()*a).sum(1)/a.sum(1))).sqrt().tolist()])
