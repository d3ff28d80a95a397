package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func reference(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../config.yaml")
	require.NoError(t, err)
	return text
}

func schema(t *testing.T) []Setting {
	t.Helper()
	settings, err := Schema(reference(t))
	require.NoError(t, err)
	return settings
}

// fields returns the paths of all leaf fields of a struct, by their mapstructure tags.
func fields(typ reflect.Type, prefix string) (out []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		key := prefix + f.Tag.Get("mapstructure")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, fields(f.Type, key+".")...)
			continue
		}
		out = append(out, key)
	}
	return out
}

func TestConfigYAMLNamesEverySettingOnce(t *testing.T) {
	settings := schema(t)
	var keys, ruled []string
	for _, s := range settings {
		keys = append(keys, s.Key)
		require.NotEmpty(t, s.Help, "%s has no comment in config.yaml", s.Key)
		require.False(t, serviceLink.MatchString(s.Env), "%s could be made by a kubelet for a Service", s.Env)
	}
	for key := range rules {
		ruled = append(ruled, key)
	}
	require.ElementsMatch(t, fields(reflect.TypeFor[Config](), ""), keys, "config.yaml and Config differ")
	require.ElementsMatch(t, keys, ruled, "config.yaml and the rules differ")
	for role, needs := range needed {
		for _, key := range needs {
			require.Contains(t, keys, key, "needed by %s", role)
		}
	}
	for _, replaced := range fallbacks {
		require.Subset(t, keys, replaced)
	}
}

func TestDefaultsAreConfigYAML(t *testing.T) {
	settings := schema(t)
	fromDefaults := loaded(t, nil)
	fromFile, err := Load(Sources{Settings: settings, File: "../../config.yaml"})
	require.NoError(t, err)
	require.Equal(t, fromDefaults.Config, fromFile.Config)

	c := fromDefaults.Config
	require.Equal(t, "liqod", c.Namespace)
	require.Equal(t, 8*time.Second, c.Lease.Duration)
	require.Equal(t, 5, c.Probe.Window().Size)
	require.Len(t, c.Reflection.SkipAnnotations, 11)
	require.Empty(t, c.Reflection.SkipLabels)
	require.Equal(t, "64Mi", c.Controller.VKubelet.Resources.MemoryRequest)
	require.Equal(t, ":10250", c.VKubelet.ListenAddress)
	require.Len(t, Prefixes(c.IPAM.Pools), 2)
	require.Empty(t, c.IPAM.Keep)
}

var wantLine = regexp.MustCompile(`(?m)^# want: (.*)$`)

func TestFiles(t *testing.T) {
	settings := schema(t)
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := Load(Sources{Settings: settings, File: path})
			if strings.HasSuffix(path, ".good.yaml") {
				require.NoError(t, err)
				return
			}
			text, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			var want []string
			for _, m := range wantLine.FindAllStringSubmatch(string(text), -1) {
				want = append(want, strings.ReplaceAll(m[1], "PATH", path))
			}
			require.NotEmpty(t, want)
			require.Error(t, err)
			require.ElementsMatch(t, want, strings.Split(err.Error(), "\n"))
		})
	}
}

func TestGoodFile(t *testing.T) {
	e, err := Load(Sources{Settings: schema(t), File: "testdata/all.good.yaml"})
	require.NoError(t, err)
	require.Equal(t, "rome", e.ClusterID)
	require.Equal(t, Log{Level: "debug", Format: "console"}, e.Log)
	require.Equal(t, Server{Address: ""}, e.Server)
	require.Equal(t, 8*time.Second, e.Lease.Duration, "not in the file")
	require.Equal(t, 90*time.Second, e.Health.UnknownGrace)
	require.Equal(t, []string{"example.com/a", "b"}, e.Reflection.SkipLabels)
	require.Empty(t, e.Reflection.SkipAnnotations)
	require.Equal(t, Kind{Type: "AllowList", Workers: 10}, e.Reflection.Secret, "its neighbour is not in the file")
	require.Equal(t, Kind{Type: "DenyList"}, e.Reflection.Ingress)
	require.Equal(t, 12, e.Controller.Workers)
	require.Equal(t, []string{"--log.level=debug"}, e.Controller.VKubelet.ExtraArgs)
	require.Equal(t, "50m", e.Controller.VKubelet.Resources.CPURequest, "its neighbour is in the file")

	_, err = Load(Sources{Settings: schema(t), File: "testdata/absent.yaml"})
	require.EqualError(t, err, "reading the configuration file: open testdata/absent.yaml: no such file or directory")
}

func parse(t *testing.T, settings []Setting, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags, settings)
	require.NoError(t, flags.Parse(args))
	return flags
}

// loaded is the configuration with these variables and flags.
func loaded(t *testing.T, env []string, args ...string) *Effective {
	t.Helper()
	settings := schema(t)
	e, err := Load(Sources{Settings: settings, Env: env, Flags: parse(t, settings, args...)})
	require.NoError(t, err)
	return e
}

func TestOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "liqod.yaml")
	require.NoError(t, os.WriteFile(file, []byte("log:\n  level: warn\nnamespace: from-file\n"), 0o600))
	const inFile = "file "
	for name, tc := range map[string]struct {
		file   string
		env    []string
		args   []string
		key    string
		want   string
		origin string
	}{
		"default":                   {"", nil, nil, "log.level", "info", "default"},
		"file":                      {file, nil, nil, "log.level", "warn", inFile + file + ":2"},
		"environment above file":    {file, []string{"LIQOD_LOG_LEVEL=error"}, nil, "log.level", "error", "env LIQOD_LOG_LEVEL"},
		"flag above all":            {file, []string{"LIQOD_LOG_LEVEL=error"}, []string{"--log.level=debug"}, "log.level", "debug", "flag --log.level"},
		"a flag with the default":   {file, nil, []string{"--log.level=info"}, "log.level", "info", "flag --log.level"},
		"camel case in environment": {"", []string{"LIQOD_VKUBELET_NODEADDRESS=10.0.0.1"}, nil, "vkubelet.nodeAddress", "10.0.0.1", "env LIQOD_VKUBELET_NODEADDRESS"},
		"camel case in a flag":      {"", nil, []string{"--vkubelet.nodeAddress=10.0.0.2"}, "vkubelet.nodeAddress", "10.0.0.2", "flag --vkubelet.nodeAddress"},
		"a flag by its other name":  {"", nil, []string{"--enable-apiserver-support=false"}, "vkubelet.enableAPIServerSupport", "false", "flag --vkubelet.enableAPIServerSupport"},
		"its other name, last":      {"", nil, []string{"--vkubelet.enableAPIServerSupport=true", "--enable-apiserver-support=false"}, "vkubelet.enableAPIServerSupport", "false", "flag --vkubelet.enableAPIServerSupport"},
		"its other name, no value":  {"", nil, []string{"--vkubelet.enableAPIServerSupport=false", "--enable-apiserver-support"}, "vkubelet.enableAPIServerSupport", "true", "flag --vkubelet.enableAPIServerSupport"},
		"an empty variable counts":  {"", []string{"LIQOD_SERVER_ADDRESS="}, nil, "server.address", "", "env LIQOD_SERVER_ADDRESS"},
		"the pod's namespace":       {"", []string{"POD_NAMESPACE=apps"}, nil, "namespace", "apps", "env POD_NAMESPACE"},
		"file above the pod's":      {file, []string{"POD_NAMESPACE=apps"}, nil, "namespace", "from-file", inFile + file + ":3"},
		"ours above the pod's":      {"", []string{"POD_IP=10.0.0.1", "LIQOD_VKUBELET_NODEADDRESS=10.0.0.3"}, nil, "vkubelet.nodeAddress", "10.0.0.3", "env LIQOD_VKUBELET_NODEADDRESS"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schema(t)
			e, err := Load(Sources{Settings: settings, File: tc.file, Env: tc.env, Flags: parse(t, settings, tc.args...)})
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(e.value(tc.key)))
			require.Equal(t, tc.origin, e.origin[tc.key])
		})
	}
}

func TestEnvironmentAndFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		env  []string
		args []string
		want string // error; empty: none
	}{
		"types": {
			[]string{"LIQOD_CONTROLLER_WORKERS=3", "LIQOD_NETWORKING_ENABLED=true", "LIQOD_LEASE_DURATION=1m", "LIQOD_HEALTH_UNKNOWNGRACE=2m", "LIQOD_REFLECTION_SKIPLABELS=a, b"},
			[]string{"--controller.runtimeClasses=gvisor,kata", "--controller.runtimeClasses=third", "--networking.enabled"},
			"",
		},
		"ours, but not settings":    {[]string{"LIQOD_E2E_TIER=full", "LIQOD_REQUIRE_NETNS=1"}, nil, ""},
		"not ours":                  {[]string{"HOME=/", "LIQO_CLUSTERID=x"}, nil, ""},
		"made for a Service":        {[]string{"LIQOD_WEBHOOK_SERVICE_HOST=10.0.0.1", "LIQOD_WEBHOOK_SERVICE_PORT_HTTPS=443", "LIQOD_WEBHOOK_PORT=tcp://10.0.0.1:443", "LIQOD_WEBHOOK_PORT_443_TCP_ADDR=10.0.0.1"}, nil, ""},
		"unknown variable":          {[]string{"LIQOD_LOG_LEVLE=debug"}, nil, "unknown environment variable LIQOD_LOG_LEVLE; did you mean LIQOD_LOG_LEVEL?"},
		"unknown, nothing like it":  {[]string{"LIQOD_FROBNICATE_EVERYTHING_THERE_IS=1"}, nil, "unknown environment variable LIQOD_FROBNICATE_EVERYTHING_THERE_IS"},
		"wrong type in environment": {[]string{"LIQOD_CONTROLLER_WORKERS=many"}, nil, `controller.workers: "many" is not accepted (from env LIQOD_CONTROLLER_WORKERS): a whole number from 1 to 1000`},
		"wrong type in a flag":      {nil, []string{"--probe.interval=1"}, `probe.interval: "1" is not accepted (from flag --probe.interval): a duration with its unit, from 100ms to 1h`},
		"a name for an address":     {nil, []string{"--controller.vkubelet.nodeAddress=vk.example.com"}, `controller.vkubelet.nodeAddress: "vk.example.com" is not accepted (from flag --controller.vkubelet.nodeAddress): an IP address, or ""`},
		"names and addresses":       {nil, []string{"--webhook.hosts=hooks.example.com,10.0.0.1,fd00::1", "--vkubelet.nodeAddress=fd00::1"}, ""},
		"a port alone":              {nil, []string{"--vkubelet.homeAPIServer=:6443"}, `vkubelet.homeAPIServer: ":6443" is not accepted (from flag --vkubelet.homeAPIServer): host:port, as in 192.0.2.1:6443, or ""`},
		"hosts with ports":          {[]string{"LIQOD_VKUBELET_HOMEAPISERVER=[2001:db8::1]:443"}, []string{"--vkubelet.homeAPIServer=api.rome.example:6443"}, ""},
		"all addresses kept":        {nil, []string{"--ipam.keep=10.0.0.0/8,0.0.0.0/0"}, `ipam.keep: [10.0.0.0/8 0.0.0.0/0] is not accepted (from flag --ipam.keep): a list, each element a CIDR without host bits and longer than /0, as 10.42.0.0/16`},
		"a pool of all addresses":   {nil, []string{"--ipam.pools=::/0"}, `ipam.pools: [::/0] is not accepted (from flag --ipam.pools): a list, each element a CIDR without host bits and longer than /0, as 10.42.0.0/16`},
		"the fastest probes":        {nil, []string{"--gateway.probe.interval=10ms", "--gateway.probe.silence=100ms", "--gateway.probe.answers=1"}, ""},
		"the slowest probes":        {nil, []string{"--gateway.probe.interval=1m", "--gateway.probe.silence=10m", "--gateway.probe.answers=1000"}, ""},
		"probes too fast":           {nil, []string{"--gateway.probe.interval=9ms"}, `gateway.probe.interval: "9ms" is not accepted (from flag --gateway.probe.interval): a duration with its unit, from 10ms to 1m`},
		"probes too slow":           {nil, []string{"--gateway.probe.interval=61s"}, `gateway.probe.interval: "61s" is not accepted (from flag --gateway.probe.interval): a duration with its unit, from 10ms to 1m`},
		"too short a silence":       {nil, []string{"--gateway.probe.silence=99ms"}, `gateway.probe.silence: "99ms" is not accepted (from flag --gateway.probe.silence): a duration with its unit, from 100ms to 10m`},
		"too long a silence":        {nil, []string{"--gateway.probe.silence=601s"}, `gateway.probe.silence: "601s" is not accepted (from flag --gateway.probe.silence): a duration with its unit, from 100ms to 10m`},
		"four intervals of silence": {nil, []string{"--gateway.probe.interval=1s", "--gateway.probe.silence=4s"}, ""},
		"silence below that":        {nil, []string{"--gateway.probe.interval=1s", "--gateway.probe.silence=3999ms"}, "gateway.probe.silence: 3.999s is not accepted: at least four times gateway.probe.interval, which is 1s"},
		"no answer":                 {nil, []string{"--gateway.probe.answers=0"}, `gateway.probe.answers: "0" is not accepted (from flag --gateway.probe.answers): a whole number from 1 to 1000`},
		"too many answers":          {nil, []string{"--gateway.probe.answers=1001"}, `gateway.probe.answers: "1001" is not accepted (from flag --gateway.probe.answers): a whole number from 1 to 1000`},
		"wrong element of a list":   {nil, []string{"--controller.runtimeClasses=gvisor,A B"}, `controller.runtimeClasses: [gvisor A B] is not accepted (from flag --controller.runtimeClasses): a list, each element the name of an object (a-z, 0-9, - and ., at most 253 characters)`},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schema(t)
			e, err := Load(Sources{Settings: settings, Env: tc.env, Flags: parse(t, settings, tc.args...)})
			if tc.want != "" {
				require.EqualError(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			if name == "types" {
				require.Equal(t, 3, e.Controller.Workers)
				require.True(t, e.Networking.Enabled)
				require.Equal(t, time.Minute, e.Lease.Duration)
				require.Equal(t, []string{"a", "b"}, e.Reflection.SkipLabels)
				require.Equal(t, []string{"gvisor", "kata", "third"}, e.Controller.RuntimeClasses)
			}
		})
	}
}

func TestValidateFor(t *testing.T) {
	e := loaded(t, nil)
	for name, tc := range map[string]struct {
		roles []string
		want  []string
	}{
		"need nothing": {[]string{"webhook", "ipam"}, nil},
		"controller": {[]string{"controller"}, []string{
			"clusterID: needed by role controller: a DNS label of at most 51 characters (a-z, 0-9 and -, as in rome-1) (LIQOD_CLUSTERID, --clusterID or a line in the --config file)",
			"controller.vkubelet.image: needed by role controller: an image reference (LIQOD_CONTROLLER_VKUBELET_IMAGE, --controller.vkubelet.image or a line in the --config file)",
		}},
		"vkubelet": {[]string{"webhook", "vkubelet"}, []string{
			"clusterID: needed by role vkubelet: a DNS label of at most 51 characters (a-z, 0-9 and -, as in rome-1) (LIQOD_CLUSTERID, --clusterID or a line in the --config file)",
			"vkubelet.virtualNode: needed by role vkubelet: namespace/name, as in liqo-tenant-milan/milan (LIQOD_VKUBELET_VIRTUALNODE, --vkubelet.virtualNode or a line in the --config file)",
			"vkubelet.nodeAddress: needed by role vkubelet: an IP address (LIQOD_VKUBELET_NODEADDRESS, --vkubelet.nodeAddress or a line in the --config file)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.ValidateFor(tc.roles)
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, strings.Join(tc.want, "\n"))
		})
	}
	good, err := Load(Sources{Settings: schema(t), File: "testdata/all.good.yaml"})
	require.NoError(t, err)
	require.NoError(t, good.ValidateFor([]string{"controller"}))
	settings := schema(t)
	good, err = Load(Sources{Settings: settings, File: "testdata/all.good.yaml", Flags: parse(t, settings, "--networking.enabled=true", "--networking.externalCIDRs=")})
	require.NoError(t, err)
	for _, role := range []string{"controller", "ipam"} {
		require.ErrorContains(t, good.ValidateFor([]string{role}), "networking.externalCIDRs: needed by role "+role+": a list")
	}
	require.NotContains(t, good.ValidateFor([]string{"vkubelet"}).Error(), "networking")
}

func TestPrintSaysWhereFromAndCanBeReadBack(t *testing.T) {
	settings := schema(t)
	e, err := Load(Sources{
		Settings: settings, File: "testdata/all.good.yaml",
		Env:   []string{"LIQOD_LOG_LEVEL=warn", "POD_IP=fd00::1"},
		Flags: parse(t, settings, "--probe.window=7"),
	})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, e.Print(&out))
	for _, want := range []string{
		"clusterID: \"rome\" # file testdata/all.good.yaml:1\n",
		"log:\n  level: \"warn\" # env LIQOD_LOG_LEVEL\n  format: \"console\" # file",
		"  window: 7 # flag --probe.window\n",
		"  duration: 8s # default\n",
		"  nodeAddress: \"fd00::1\" # env POD_IP\n",
		"  skipAnnotations: [] # file",
		"    extraArgs: # file testdata/all.good.yaml:18\n      - \"--log.level=debug\"\n",
		"    resources:\n      cpuRequest: \"50m\" # default\n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.Equal(t, len(settings), strings.Count(out.String(), " # "), "one origin for each setting")

	file := filepath.Join(t.TempDir(), "printed.yaml")
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	again, err := Load(Sources{Settings: settings, File: file})
	require.NoError(t, err)
	require.Equal(t, e.Config, again.Config)
}
