package site

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/liqod/liqod/e2e/lab"
)

// KillNode ends a node of the cluster, and its role route, which is a process of its own here.
func (s *Site) KillNode(ctx context.Context, n *lab.Node) error {
	s.Fabric.Route(n.Name).Kill()
	return n.Kill(ctx)
}

// StartNode starts a node after KillNode, with its role route.
func (s *Site) StartNode(ctx context.Context, n *lab.Node) error {
	return errors.Join(s.Fabric.RestartRoute(n.Name), n.Start(ctx))
}

// KillAll ends the cluster's control plane, its gateway and its nodes, all at once.
func (s *Site) KillAll(ctx context.Context) error {
	var everything errgroup.Group
	everything.Go(func() error { s.KillControlPlane(); return nil })
	everything.Go(func() error { s.Fabric.Gateway().Kill(); return nil })
	for _, n := range s.sites.Full.Nodes(s.Cluster) {
		everything.Go(func() error { return s.KillNode(ctx, n) })
	}
	return everything.Wait()
}

// StartAll starts a cluster after KillAll.
func (s *Site) StartAll(ctx context.Context) error {
	if err := s.StartControlPlane(ctx); err != nil {
		return err
	}
	var everything errgroup.Group
	everything.Go(s.Fabric.RestartGateway)
	for _, n := range s.sites.Full.Nodes(s.Cluster) {
		everything.Go(func() error { return s.StartNode(ctx, n) })
	}
	return everything.Wait()
}
