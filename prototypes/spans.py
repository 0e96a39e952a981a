import sys; sys.path.insert(0,'/tmp/adam')
from common import *
torch.set_num_threads(1)
data,m,layout,w0,w1,x,y,batches=workload(24,8)
mean=torch.tensor(data.mean).view(1,3,1,1); std=torch.tensor(data.std).view(1,3,1,1)
for f in sys.argv[1:]:
    d=torch.load(f)
    o=[]
    for k,(X,bt) in enumerate(zip(d['X'],batches)):
        if d['batches'][k].tolist()!=bt.tolist(): print('other batches'); break
        tr=torch.cat([((x[bt]-mean)/std).flatten(1),torch.ones(len(bt),1)],1); Q=torch.linalg.qr(X.T.double())[0].float(); pr=(tr@Q)@Q.T
        e=((pr-tr)[:,:-1].view(-1,*SHAPE)*std).square().flatten(1).mean(1); o.append(f"{(-10*e.log10()).mean():.1f}")
    print(f,o)
