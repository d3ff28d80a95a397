package client

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func kubeconfig(t *testing.T, mutate func(*clientcmdapi.Config)) []byte {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: []byte("ca")}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret-token"}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	mutate(cfg)
	data, err := clientcmd.Write(*cfg)
	require.NoError(t, err)
	return data
}

func TestFromKubeconfigRefusesWhatReachesOut(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate func(*clientcmdapi.Config)
		want   string
	}{
		"a command": {func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}, "runs a command"},
		"an auth provider": {func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, "auth-provider"},
		"a token file":            {func(c *clientcmdapi.Config) { c.AuthInfos["u"].TokenFile = "/var/run/token" }, "file of a token"},
		"a certificate file":      {func(c *clientcmdapi.Config) { c.AuthInfos["u"].ClientCertificate = "/etc/x" }, "file of a certificate"},
		"a key file":              {func(c *clientcmdapi.Config) { c.AuthInfos["u"].ClientKey = "/etc/x" }, "file of a key"},
		"a CA file":               {func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthority = "/etc/x" }, "file of a certificate authority"},
		"an unverified server":    {func(c *clientcmdapi.Config) { c.Clusters["c"].InsecureSkipTLSVerify = true }, "skips the verification"},
		"a plain server":          {func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "http://10.0.0.1" }, "accepted is https"},
		"a server without scheme": {func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "10.0.0.1:6443" }, "accepted is https"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FromKubeconfig(kubeconfig(t, tc.mutate))
			require.ErrorIs(t, err, ErrUnsafeKubeconfig)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "secret-token")
		})
	}
}

func TestFromKubeconfigUsesTheCurrentContext(t *testing.T) {
	cfg, err := FromKubeconfig(kubeconfig(t, func(c *clientcmdapi.Config) {
		c.AuthInfos["other"] = &clientcmdapi.AuthInfo{TokenFile: "/not/used"}
	}))
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.1:6443", cfg.Host)
	require.Equal(t, "secret-token", cfg.BearerToken)

	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"no context": {kubeconfig(t, func(c *clientcmdapi.Config) { c.CurrentContext = "y" }), `no current context "y"`},
		"no cluster": {kubeconfig(t, func(c *clientcmdapi.Config) { delete(c.Clusters, "c") }), `no cluster "c"`},
		"no user":    {kubeconfig(t, func(c *clientcmdapi.Config) { delete(c.AuthInfos, "u") }), `no user "u"`},
		"empty":      {nil, "no current context"},
		"garbage":    {[]byte("\x00"), "decoding the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FromKubeconfig(tc.data)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLoadOrder(t *testing.T) {
	dir := t.TempDir()
	write := func(name, host string) string {
		path := filepath.Join(dir, name)
		data := kubeconfig(t, func(c *clientcmdapi.Config) { c.Clusters["c"].Server = host })
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	flag, env := write("flag", "https://flag"), write("env", "https://env")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tc := range map[string]struct {
		flag, env, host, err string
	}{
		"the flag wins":            {flag, env, "https://flag", ""},
		"then the environment":     {"", env, "https://env", ""},
		"a list in it is searched": {"", filepath.Join(dir, "missing") + ":" + env, "https://env", ""},
		"a missing file is named":  {filepath.Join(dir, "missing"), env, "", filepath.Join(dir, "missing")},
		"nothing at all":           {"", "", "", "does not run in a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Load(Options{Kubeconfig: tc.flag, Getenv: func(string) string { return tc.env }})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.host, cfg.Host)
		})
	}
}
