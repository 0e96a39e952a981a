exec(open('/tmp/a3/b1.py').read().split("print('at truth'")[0])
data_m=models.build("mlp",input_shape=SHAPE,classes=10,mean=data.mean,std=data.std,seed=o.seed,widths=[1024]*3).eval()
ps=list(data_m.parameters()); opt=torch.optim.Adam(ps,lr=1e-3); W=[[q.detach().clone() for q in ps]]
for b in batches:
    with torch.no_grad(): print('loss all',F.cross_entropy(data_m(x),y).item(),'batch',F.cross_entropy(data_m(x[b]),y[b]).item())
    opt.zero_grad(); F.cross_entropy(data_m(x[b]),y[b]).backward(); opt.step(); W.append([q.detach().clone() for q in ps])
with torch.no_grad(): print('final',F.cross_entropy(data_m(x),y).item())
names=['W1','b1','W2','b2','W3','b3','W4','b4']
cos=lambda A,B: [round((sum((a*b).sum() for a,b in zip(A[i:i+1],B[i:i+1]))/(A[i].norm()*B[i].norm())).item(),2) for i in range(8)]
D=[[b-a for a,b in zip(W[k],W[k+1])] for k in range(4)]; tot=[b-a for a,b in zip(W[0],W[-1])]
print(names)
for k in range(4): print('step',k,'cos to total',cos(D[k],tot),'rms/lr',[round(d.square().mean().sqrt().item()/1e-3,2) for d in D[k]])
# expected adam at true weights
for k in range(4):
    ws=W[k]; acts,ds=ad(ws,x); U=[]
    for a,d in zip(acts,ds):
        for g,s in ((d.T@a/len(x),(d.square().T@a.square())/len(x)),(d.mean(0),d.square().mean(0))):
            U.append(-g/(g*g+(s-g*g).clamp_min(0)/o.bs+1e-16).sqrt())
    print('expected at W',k,cos(U,D[k]),'with total',cos(U,tot))
