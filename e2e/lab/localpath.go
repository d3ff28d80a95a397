package lab

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
)

// StorageProvisioner makes the volumes of ApplyStorage. StorageClass is its class, the default of its
// cluster. A class that a test makes by the name SharedStorageClass has volumes that all nodes of its
// cluster share.
const (
	StorageProvisioner = "rancher.io/local-path"
	StorageClass       = "local-path"
	SharedStorageClass = "shared"
)

//go:embed local-path.yaml
var localPathManifests string

// ApplyStorage gives a cluster of this tier a provisioner of volumes, rancher's
// local-path-provisioner, which runs beside the control plane. A volume is a folder of the node
// that its first pod is scheduled to (Node.Volumes). It outlives the node's containers and
// a power failure of the node. The first call on a machine builds the provisioner.
func (f *Full) ApplyStorage(ctx context.Context, c *Cluster) error {
	const name = "local-path-provisioner"
	binary, err := buildTool(ctx, name, f.lab.Logf)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, localPathManifests, TestImage, nodeVolumes, c.path(SharedStorageClass))); err != nil {
		return err
	}
	kubeconfig, err := c.KubeconfigForUser(name, "system:masters")
	if err != nil {
		return err
	}
	_, err = f.lab.Process(ProcessOptions{
		Name: filepath.Join(c.Name, name), Path: binary, Args: []string{"start", "--kubeconfig", kubeconfig}, Netns: c.Options.Netns,
	})
	return err
}

// nodeVolumes is where a node has its volumes, as one of k3s does. They are in Volumes for the lab.
const nodeVolumes = "/var/lib/rancher/k3s/storage"

// Volumes is the folder with the volumes of the node.
func (n *Node) Volumes() string { return filepath.Join(n.Dir, "volumes") }
