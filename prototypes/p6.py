# after ALS: columns of every step with rows reliable, planes from factors
import sys; fil=sys.argv[1]; sys.argv=['p3','/tmp/adam/s2.pt']
sys.path.insert(0,'/tmp/a3')
exec(open('/tmp/a3/p2.py').read().split("t0=time.process_time()\nX=d['X']")[0])
r=torch.load(fil); Q,A,f=r['Q'],r['A'],r['f']
Pa=torch.cat([w0[W],w0[b][:,None]],1); walk=Walk(recipe); cur=Pa.clone(); t0=time.process_time()
mm=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
opt=torch.optim.Adam(mm.parameters(),lr=1e-3)
for kk,bt in enumerate(batches):
    q=list(mm.parameters()); tp=torch.cat([q[0],q[1][:,None]],1).detach().clone()
    opt.zero_grad(); F.cross_entropy(mm(x[bt]),y[bt]).backward(); GT=torch.cat([q[0].grad,q[1].grad[:,None]],1).clone(); opt.step()
    tr=with1(x[bt]); act=(tr@tp.T>0); mine=(tr@cur.T>0)
    Et=torch.linalg.lstsq(tr.T.double(),GT.T.double()).solution   # 8 x 1024, exact
    print('step',kk,'mask agree at my planes',round((act==mine).float().mean().item(),4),'error norms',[round(q,4) for q in (Et.norm(dim=1)/Et.norm()).tolist()])
    G=A[:,8*kk:8*kk+8]@Q[8*kk:8*kk+8]; gn=G/G.square().mean(1,keepdim=True).sqrt()
    for keep in (1.0,):
        sel=(f<3*f.median()).nonzero().flatten()
        for rel in (.03,.06,.1,.15,.2,.3):
            sp=row_space(gn[sel],8,rel); c=blind_columns(sp,cur[sel].double()@sp.right,0)
            E=Et[:,sel]/G[sel].norm(dim=1).double()
            qq=F.normalize(c.mix@sp.left.T,dim=1); cos=(qq@F.normalize(E,dim=1).T).abs()
            print('   rel',rel,'found',len(c),[round(v,3) for v in cos.max(1).values.tolist()] if len(c) else '','distinct',len(set(cos.max(1).indices.tolist())) if len(c) else 0,f"{time.process_time()-t0:.1f}s",flush=True)
            if len(c)==8: break
    cur=cur+1e-3*walk.forward(G)
