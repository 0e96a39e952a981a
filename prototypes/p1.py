import sys; sys.path.insert(0,'/tmp/adam')
from common import *
from dpfl_audit.attacks.inversion.local_training import Walk
from dpfl_audit.attacks.inversion.row_space import row_space
from dpfl_audit.attacks.inversion.blind import blind_columns
torch.set_num_threads(1)
d=torch.load(sys.argv[1]); rels=[float(q) for q in sys.argv[2].split(',')]
data,m,layout,w0,w1,x,y,batches=workload(24,8)
names=list(w0); W,b=names[0],names[1]; rows=d['rows']
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
P=torch.cat([w0[W],w0[b][:,None]],1)[rows]; PK=torch.cat([w1[W],w1[b][:,None]],1)[rows]
rec=Recipe('adam',1e-3,(8,8,8),1)
# true trajectory
mm=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=0,widths=[1024]*3).eval()
opt=torch.optim.Adam(mm.parameters(),lr=1e-3); TP=[]
for bt in batches:
    p=list(mm.parameters()); TP.append(torch.cat([p[0],p[1][:,None]],1)[rows].detach().clone()); opt.zero_grad(); F.cross_entropy(mm(x[bt]),y[bt]).backward(); opt.step()
walk=Walk(rec); G=[A@X for A,X in zip(d['A'],d['X'])]; cur=P.clone()
for k,(g,bt) in enumerate(zip(G,batches)):
    tr=torch.cat([((x[bt]-mean)/std).flatten(1),torch.ones(len(bt),1)],1)
    act=(tr@TP[k].T>0); mine=(tr@cur.T>0)
    print('step',k,'mask agreement with planes: mine',(act==mine).float().mean().item(),'w0',(act==(tr@P.T>0)).float().mean().item(),'wK',(act==(tr@PK.T>0)).float().mean().item(),'off share',(~act).float().mean().item())
    nm=g.square().mean(1,keepdim=True).sqrt(); gn=(g/nm)
    E=torch.linalg.lstsq(tr.T.double(),gn.T.double()).solution
    print('   off/on error size',[round(q,3) for q in ((E.abs()*~act).sum(1)/(~act).sum(1)/((E.abs()*act).sum(1)/act.sum(1))).tolist()])
    for r in rels:
        sp=row_space(gn,len(bt),r*gn.square().mean().sqrt().item()); t=time.process_time()
        c=blind_columns(sp,cur.double()@sp.right,0)
        q=c.mix@sp.left.T; cos=(F.normalize(q,dim=1)@F.normalize(E*act,dim=1).T).abs()
        print('   rel',r,'found',len(c),[round(v,2) for v in cos.max(1).values.tolist()] if len(c) else '','distinct',len(set(cos.max(1).indices.tolist())) if len(c) else 0,f"{time.process_time()-t:.1f}s",flush=True)
    cur=cur+walk.forward(g)
