package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access says as whom, and which way, a kubeconfig leads to a cluster.
type Access struct {
	// Namespace of the service account.
	Namespace string
	// ServiceAccount is the name of one that exists.
	ServiceAccount string
	// Proxied leads through the front (Cluster.Proxied).
	Proxied bool
	// Lifetime of the token, at least 10 minutes. Default 24 h.
	Lifetime time.Duration
}

// KubeconfigData asks for a token of a service account and returns a kubeconfig with it.
func (c *Cluster) KubeconfigData(ctx context.Context, access Access) ([]byte, error) {
	setDefault(&access.Lifetime, 24*time.Hour)
	seconds := int64(access.Lifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := c.client.CoreV1().ServiceAccounts(access.Namespace).CreateToken(ctx, access.ServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of %s/%s in cluster %s: %w", access.Namespace, access.ServiceAccount, c.Name, err)
	}
	server := c.APIServer
	if access.Proxied {
		server = c.front.URL
	}
	return c.kubeconfig(server, &clientcmdapi.AuthInfo{Token: answer.Status.Token})
}

// KubeconfigFor writes what KubeconfigData returns to a file and returns its path,
// which is the same for the same account and way.
func (c *Cluster) KubeconfigFor(ctx context.Context, access Access) (string, error) {
	data, err := c.KubeconfigData(ctx, access)
	if err != nil {
		return "", err
	}
	name := access.Namespace + "." + access.ServiceAccount
	if access.Proxied {
		name += ".proxied"
	}
	path := filepath.Join(c.Dir, "kubeconfigs", name)
	return path, writeFiles(map[string][]byte{path: data})
}

// KubeconfigForUser writes a kubeconfig with a client certificate, straight to the
// API server, and returns its path.
func (c *Cluster) KubeconfigForUser(user string, groups ...string) (string, error) {
	return c.kubeconfigForUser(c.APIServer, filepath.Base(user), user, groups)
}

// ProxiedKubeconfig writes a kubeconfig of the administrator that leads through the front
// (Cluster.Proxied), and returns its path.
func (c *Cluster) ProxiedKubeconfig() (string, error) {
	return c.kubeconfigForUser(c.front.URL, "admin.proxied", "admin", []string{"system:masters"})
}

func (c *Cluster) kubeconfigForUser(server, file, user string, groups []string) (string, error) {
	cert, key, err := c.authority.Issue(CertificateRequest{CommonName: user, Organizations: groups})
	if err != nil {
		return "", err
	}
	data, err := c.kubeconfig(server, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir, "kubeconfigs", file)
	return path, writeFiles(map[string][]byte{path: data})
}

// KubeconfigForNode writes the kubeconfig of a node's kubelet and returns its path.
func (c *Cluster) KubeconfigForNode(node string) (string, error) {
	return c.KubeconfigForUser("system:node:"+node, "system:nodes")
}

func (c *Cluster) kubeconfig(server string, user *clientcmdapi.AuthInfo) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.CA}
	config.AuthInfos[c.Name] = user
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name}
	config.CurrentContext = c.Name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig of cluster %s: %w", c.Name, err)
	}
	return data, nil
}

func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a directory of the cluster: %w", err)
		}
	}
	return nil
}
