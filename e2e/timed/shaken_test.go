package timed

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

var (
	duration = flag.Duration("for", time.Minute, "how long the clusters are shaken, and how long TestAlarm lasts")
	rate     = flag.Int("rate", 50, "changes a second at most")
)

const (
	consumer, provider = "rome", "milan"
	tenant             = "liqo-tenant-" + provider
	// user and stranger are the field managers of what is done at home and in the provider.
	user     = "soak-user"
	stranger = "soak-stranger"
)

// shaken is a world whose reflection is shaken.
type shaken struct {
	*world
	// home and away are clients that give up on an API server that does not answer.
	home, away kubernetes.Interface
	namespaces []string
}

func newShaken(t *testing.T) *shaken {
	t.Helper()
	sites, list := site.World{
		Clusters: []string{consumer, provider}, Settings: []map[string]any{{"sharing": map[string]any{
			"serviceTypes": []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}, "annotations": []string{"*"},
		}}},
		Adjust: func(o *lab.ClusterOptions) { o.SimulatedNodes, o.NodeGrace = 1, time.Minute },
	}.Start(t)
	w := &shaken{world: &world{sites: sites, rome: list[0], milan: list[1]}, namespaces: []string{"soak-0", "soak-1", "soak-2"}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{}))
	w.home, w.away = impatient(t, w.rome), impatient(t, w.milan)
	return w
}

func impatient(t *testing.T, s *site.Site) kubernetes.Interface {
	t.Helper()
	config := s.Config()
	config.Timeout, config.WarningHandler = answerWithin, rest.NoWarnings{}
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}
