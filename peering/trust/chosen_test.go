package trust

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChosenIDs: by its id a peer may name its namespaces as a product that is installed later.
func TestChosenIDs(t *testing.T) {
	t.Parallel()
	peers, namespaces := []string{"b-a", "oslo"}, []string{"payments-blue", "bank", "team-x-green"}
	texts := map[string]bool{}
	for id, accepted := range map[string]bool{
		"rome": true, "milan-2": true, "eu-west-1": true, "bank": true, "team": true, "x": true, "b": true, "managers": true, "my-manager": true, "slo": true,
		"manager": false, "system": false, "nginx": false, "dns": false, "operator": false, "controller": false, "prod": false,
		"management": false, "apiserver": false, "ceph": false, "viz": false, "rollouts": false, "workflows": false, "chains": false, "etcd": false, "gitops": false, "kafka": false,
		"blue": false, "green": false, "x-green": false,
		"a": false, "north-oslo": false, "c-b-a": false,
	} {
		err := CheckChosenID(id, peers, namespaces)
		require.Equal(t, accepted, err == nil, "%s: %v", id, err)
		if err != nil {
			texts[err.Error()[len("the cluster id "+id):][:40]] = true
		}
	}
	require.Len(t, texts, 1, "the answer does not disclose what there is")
}
