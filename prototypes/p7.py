import sys; fil=sys.argv[1]; sys.argv=['p3','/tmp/adam/s2.pt']
sys.path.insert(0,'/tmp/a3')
exec(open('/tmp/a3/p2.py').read().split("t0=time.process_time()\nX=d['X']")[0])
r=torch.load(fil); Q,A,f=r['Q'],r['A'],r['f']
Pa=torch.cat([w0[W],w0[b][:,None]],1); walk=Walk(recipe); cur=Pa.clone(); t0=time.process_time()
allp=[]; ims=[]
for kk,bt in enumerate(batches):
    Ak,Qk=A[:,8*kk:8*kk+8],Q[8*kk:8*kk+8]
    G=Ak@Qk; gn=G/G.square().mean(1,keepdim=True).sqrt()
    sel=(f<3*f.median()).nonzero().flatten(); best=None
    for rel in (.03,.05,.07,.1,.13,.16,.2,.25,.3):
        sp=row_space(gn[sel],8,rel); c=blind_columns(sp,cur[sel].double()@sp.right,0)
        if best is None or len(c)>len(best[1]): best=(sp,c,rel)
        if len(c)==8: break
    sp,c,rel=best; print('step',kk,'rel',rel,len(c))
    if len(c)<8: print('incomplete'); q=c.mix; mix=torch.cat([q,torch.linalg.svd(q,full_matrices=True)[2][len(c):]])
    else: mix=c.mix
    gs=gn[sel].double(); off=c.zero
    if len(off)<8: off=torch.cat([off,torch.zeros(8-len(off),off.shape[1],dtype=torch.bool)])
    E=(mix@sp.left.T)*~off
    P=cur[sel].double()
    w=torch.ones(len(sel)).double()
    for it in range(12):
        X=torch.linalg.lstsq((E*w).T,gs*w[:,None]).solution
        s=X[:,-1:]; Xn=X/s
        im=(Xn[:,:-1].float().view(-1,*SHAPE)*std+mean)
        dd,j=psnr(im.clamp(0,1),x[bt])
        if it in (0,3,11):
            trn=with1(x[bt])[:,:-1].double(); Xi=Xn[:,:-1]
            cc=(F.normalize(Xi,dim=1)@F.normalize(trn,dim=1).T); jj=cc.abs().max(1).indices
            al=(Xi*trn[jj]).sum(1)/Xi.square().sum(1); e=((al[:,None]*Xi-trn[jj]).view(-1,*SHAPE)*std.double()).square().flatten(1).mean(1)
            print('     best scale',[round(q,2) for q in al.tolist()],'psnr',[round(q,1) for q in (-10*e.log10()).tolist()],jj.tolist())
        if it in (0,3,11): print('  it',it,[round(q,1) for q in dd.tolist()],round(dd.mean().item(),2),'bias',[round(q,2) for q in s.flatten().tolist()],'mask',[round(q,2) for q in (((Xn@P.T)<0)==off).double().mean(1).tolist()],flush=True)
        if it>=2: off=(Xn@P.T)<0
        # masked refit of E given Xn: normal equations per row
        M=Xn@Xn.T; V=gs@Xn.T  # R x 8
        on=(~off).double().T
        Mr=M[None]*on[:,:,None]*on[:,None]+torch.diag_embed(1-on)
        E=(torch.linalg.solve(Mr+1e-9*torch.eye(8).double()*M.diagonal().mean(),(V*on)[...,None])[...,0]*on).T
        rest=(gs-E.T@Xn).square().mean(1); w=1/(rest/rest.median()+1).sqrt()
    al=dd; allp.append(dd); ims.append(im.clamp(0,1))
    cur=cur+1e-3*walk.forward(G)
print('all',torch.cat(allp).mean(),f"{time.process_time()-t0:.1f}s")
torch.save(ims,'/tmp/a3/ims.pt')
