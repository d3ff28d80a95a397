package rules

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/reasons"
)

// hardened returns what Harden makes of a spec. A second time changes nothing.
func hardened(t *testing.T, spec corev1.PodSpec, allowed Allowed) corev1.PodSpec {
	t.Helper()
	require.NoError(t, Harden(&spec, allowed))
	again := *spec.DeepCopy()
	require.NoError(t, Harden(&again, allowed))
	require.Equal(t, spec, again)
	return spec
}

// requireRefused requires that Harden refuses a spec for a reason, and leaves it as it was. It returns the message.
func requireRefused(t *testing.T, spec corev1.PodSpec, allowed Allowed, reason string) string {
	t.Helper()
	before := *spec.DeepCopy()
	var refused *Refused
	require.ErrorAs(t, Harden(&spec, allowed), &refused)
	require.Equal(t, reason, refused.Reason)
	require.Equal(t, before, spec, "a refused spec is left as it was")
	return refused.Message
}

func TestTolerations(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *int64 { return &n }
	exists := func(key string, effect corev1.TaintEffect, s *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect, TolerationSeconds: s}
	}
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	cases := map[string]struct{ in, want []corev1.Toleration }{
		"of nodes that the provider sets apart": {
			in: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "pci", Effect: corev1.TaintEffectNoSchedule}, exists("dedicated", "", nil)},
		},
		"the default ones": {
			in:   []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(300)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(300))},
			want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(300)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(300))},
		},
		"not ready, every effect":      {in: []corev1.Toleration{exists(notReady, "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, nil)}},
		"control plane":                {in: []corev1.Toleration{exists("node-role.kubernetes.io/control-plane", "", nil)}},
		"everything, scheduling":       {in: []corev1.Toleration{exists("", corev1.TaintEffectNoSchedule, nil)}},
		"everything, at all":           {in: []corev1.Toleration{exists("", "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, nil), exists(unreachable, corev1.TaintEffectNoExecute, nil)}},
		"everything, for a while":      {in: []corev1.Toleration{exists("", corev1.TaintEffectNoExecute, seconds(9))}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(9)), exists(unreachable, corev1.TaintEffectNoExecute, seconds(9))}},
		"everything, and default ones": {in: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(5)), exists("", "", nil)}, want: []corev1.Toleration{exists(notReady, corev1.TaintEffectNoExecute, seconds(5)), exists(unreachable, corev1.TaintEffectNoExecute, nil)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{Tolerations: tc.in}, Allowed{}).Tolerations)
		})
	}
}

func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	name := func(s string) *string { return &s }
	cases := map[string]struct {
		class   *string
		accepts []string
		message string
	}{
		"accepted":        {class: name("gvisor"), accepts: []string{"kata", "gvisor"}},
		"not in the list": {class: name("nvidia"), accepts: []string{"kata", "gvisor"}, message: `spec.runtimeClassName "nvidia": this cluster accepts from peers: kata, gvisor; its administrators can allow more by the setting controller.runtimeClasses`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, allowed := corev1.PodSpec{RuntimeClassName: tc.class}, Allowed{RuntimeClasses: tc.accepts}
			if tc.message == "" {
				require.Equal(t, tc.class, hardened(t, spec, allowed).RuntimeClassName)
				return
			}
			require.Equal(t, tc.message, requireRefused(t, spec, allowed, reasons.RuntimeClassRefused))
		})
	}
}

// TestEveryTypeOfVolumeHasARule: a type that is not listed is refused, one that is listed
// stays as it is, but for those of other tests. Of a new type in the API the test says so.
func TestEveryTypeOfVolumeHasARule(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		require.Contains(t, VolumeTypes(), name)
		volume := corev1.Volume{Name: "v"}
		fillValue(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), 0)
		if name == "projected" {
			volume.Projected.Sources[0] = corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}
		}
		spec := corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}, NodeName: "n"}
		require.Equal(t, `spec.volumes "v" is a volume of type `+name+": cluster milan accepts from peers: none; its administrators can allow more by the setting controller.volumeTypes",
			requireRefused(t, spec, Allowed{Cluster: "milan", VolumeTypes: []string{"none"}}, reasons.VolumeTypeRefused))
		if name == "ephemeral" {
			continue
		}
		require.NoError(t, Harden(&spec, Allowed{VolumeTypes: []string{name}}), name)
		require.Equal(t, []corev1.Volume{volume}, spec.Volumes)
	}
	require.Len(t, VolumeTypes(), typ.NumField(), "a type of volumes that the API does not have")
}

// TestVolumesOfNoOneType: a volume without a source is an emptyDir. The API server refuses one with two, but is not
// relied on.
func TestVolumesOfNoOneType(t *testing.T) {
	t.Parallel()
	of := func(source corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}}
	}
	empty := Allowed{VolumeTypes: []string{"emptyDir"}}
	require.Contains(t, requireRefused(t, of(corev1.VolumeSource{}), Allowed{}, reasons.VolumeTypeRefused), "type emptyDir")
	hardened(t, of(corev1.VolumeSource{}), empty)
	two := of(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}, NFS: &corev1.NFSVolumeSource{Server: "192.0.2.9", Path: "/"}})
	require.Contains(t, requireRefused(t, two, empty, reasons.VolumeTypeRefused), "type nfs")
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
	config := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}
	certificate := corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "x/y"}}
	volume := func(sources ...corev1.VolumeProjection) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}}
	}
	// The peer's own tokens come in Secrets of its twin namespace.
	secret := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "token-cashier-1"},
		Items: []corev1.KeyToPath{{Key: "token", Path: "token"}}}}
	allowed := Allowed{VolumeTypes: VolumeTypes()}
	spec := hardened(t, corev1.PodSpec{Volumes: volume(token, config, secret)}, allowed)
	require.Equal(t, []corev1.VolumeProjection{config, secret}, spec.Volumes[0].Projected.Sources)

	host := []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	require.Equal(t, host, hardened(t, corev1.PodSpec{Volumes: host}, allowed).Volumes, "pod security judges host paths")

	spec = corev1.PodSpec{Volumes: volume(certificate), NodeName: "n"}
	require.ErrorContains(t, Harden(&spec, Allowed{}), "podCertificate")
	require.Equal(t, "n", spec.NodeName, "a refused spec is left as it was")
}

// What becomes of a field of a peer's pod.
const (
	author  = "author's choice"
	forced  = "forced"
	partly  = "forced in part"
	refused = "refused"
)

// podFields says what happens to each field of a peer's pod, and why.
var podFields = map[string]struct{ fate, why string }{
	"Volumes":                       {partly, "of listed types; tokens removed, pod certificates and some claims refused; host paths are for pod security too"},
	"InitContainers":                {partly, "probes go to the pod, images are pulled anew if the setting says so; privileges are for pod security"},
	"Containers":                    {partly, "as InitContainers"},
	"EphemeralContainers":           {forced, "illegal at creation; added to the running pod, judged by pod security"},
	"RestartPolicy":                 {author, ""},
	"TerminationGracePeriodSeconds": {partly, "an hour at most"},
	"ActiveDeadlineSeconds":         {author, ""},
	"DNSPolicy":                     {author, ""},
	"NodeSelector":                  {partly, "by listed labels, no single node"},
	"ServiceAccountName":            {forced, "the namespace's default one"},
	"DeprecatedServiceAccount":      {forced, "the namespace's default one"},
	"AutomountServiceAccountToken":  {forced, "no token of this cluster"},
	"NodeName":                      {forced, "it would pass the scheduler by"},
	"HostNetwork":                   {forced, ""},
	"HostPID":                       {forced, ""},
	"HostIPC":                       {forced, ""},
	"ShareProcessNamespace":         {author, "among the pod's own containers"},
	"SecurityContext":               {author, "judged by pod security"},
	"ImagePullSecrets":              {author, "of the twin namespace"},
	"Hostname":                      {author, ""},
	"Subdomain":                     {author, ""},
	"Affinity":                      {partly, "by listed labels, no single node, nothing about pods of other namespaces"},
	"SchedulerName":                 {forced, "the default scheduler"},
	"Tolerations":                   {partly, "listed ones; none for control planes, troubled nodes, virtual nodes"},
	"HostAliases":                   {author, ""},
	"PriorityClassName":             {forced, "the default class of this cluster"},
	"Priority":                      {forced, ""},
	"DNSConfig":                     {author, ""},
	"ReadinessGates":                {author, "only the pod's own readiness waits for them"},
	"RuntimeClassName":              {refused, "unless in the list of accepted ones"},
	"EnableServiceLinks":            {author, ""},
	"PreemptionPolicy":              {forced, ""},
	"Overhead":                      {forced, "set by this cluster's runtime class"},
	"TopologySpreadConstraints":     {partly, "by listed labels; spreads the peer's own pods"},
	"SetHostnameAsFQDN":             {author, ""},
	"OS":                            {author, ""},
	"HostUsers":                     {author, "true is the default; pod security judges what comes with it"},
	"SchedulingGates":               {forced, "nobody here would lift them"},
	"ResourceClaims":                {refused, ""},
	"Resources":                     {author, "counted by quotas"},
	"HostnameOverride":              {author, ""},
	"SchedulingGroup":               {forced, "names an object of the scheduler's"},
}

// forcedTo has the values of forced fields that are not the zero value.
var forcedTo = map[string]any{"AutomountServiceAccountToken": new(bool)}

func TestEveryFieldOfAPodSpecHasARule(t *testing.T) {
	t.Parallel()
	typ := reflect.TypeFor[corev1.PodSpec]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		rule, ok := podFields[name]
		require.Truef(t, ok, "corev1.PodSpec.%s has no line in podFields: decide whether a peer may set it", name)
		if rule.fate == partly {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spec corev1.PodSpec
			fillValue(reflect.ValueOf(&spec).Elem().Field(i), 0)
			want := reflect.ValueOf(*spec.DeepCopy()).Field(i).Interface()
			require.False(t, reflect.ValueOf(&spec).Elem().Field(i).IsZero(), "the test must set the field")
			err := Harden(&spec, Allowed{})
			got := reflect.ValueOf(spec).Field(i)
			switch rule.fate {
			case author:
				require.NoError(t, err)
				require.Equal(t, want, got.Interface())
			case refused:
				require.ErrorAs(t, err, new(*Refused))
				require.Equal(t, want, got.Interface(), "a refused spec is left as it was")
			case forced:
				require.NoError(t, err)
				if v, ok := forcedTo[name]; ok {
					require.Equal(t, v, got.Interface())
				} else {
					require.True(t, got.IsZero(), "want the zero value, got %v", got)
				}
			}
		})
	}
	require.Len(t, podFields, typ.NumField(), "podFields has a line for a field that does not exist")
}

// fillValue gives v, and what is in it, values other than zero, some levels deep.
func fillValue(v reflect.Value, depth int) {
	if depth > 6 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillValue(key, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	}
}

// TestProbesGoToThePod: a kubelet would send them from the node to any host, its own
// loopback address and the cloud's metadata service included.
func TestProbesGoToThePod(t *testing.T) {
	t.Parallel()
	get := func(host string) *corev1.HTTPGetAction { return &corev1.HTTPGetAction{Host: host} }
	socket := func(host string) *corev1.TCPSocketAction { return &corev1.TCPSocketAction{Host: host} }
	probe := func(handler corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: handler} }
	for field, c := range map[string]corev1.Container{
		"livenessProbe.httpGet.host":         {LivenessProbe: probe(corev1.ProbeHandler{HTTPGet: get("169.254.169.254")})},
		"readinessProbe.tcpSocket.host":      {ReadinessProbe: probe(corev1.ProbeHandler{TCPSocket: socket("127.0.0.1")})},
		"startupProbe.httpGet.host":          {StartupProbe: probe(corev1.ProbeHandler{HTTPGet: get("localhost")})},
		"lifecycle.postStart.httpGet.host":   {Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get("::1")}}},
		"lifecycle.preStop.tcpSocket.host":   {Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: socket("10.0.0.1")}}},
		"lifecycle.postStart.tcpSocket.host": {Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{TCPSocket: socket("10.0.0.1")}}},
	} {
		c.Name = "c"
		for where, spec := range map[string]corev1.PodSpec{
			"spec.containers":     {Containers: []corev1.Container{{Name: "other"}, c}},
			"spec.initContainers": {InitContainers: []corev1.Container{c}},
		} {
			message := requireRefused(t, spec, Allowed{Cluster: "milan"}, reasons.ProbeHostRefused)
			require.Contains(t, message, where+` "c": `+field+` is "`)
			require.Contains(t, message, "cluster milan accepts no host from peers")
		}
	}
	own := corev1.PodSpec{Containers: []corev1.Container{{
		LivenessProbe: probe(corev1.ProbeHandler{HTTPGet: get("")}), ReadinessProbe: probe(corev1.ProbeHandler{TCPSocket: socket("")}),
		StartupProbe: probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{}}),
		Lifecycle:    &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: get("")}, PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}},
	}}}
	require.Equal(t, own.DeepCopy().Containers, hardened(t, own, Allowed{}).Containers)
}

// TestAlwaysPull: an image that a node has from another tenant needs its pull secret again.
func TestAlwaysPull(t *testing.T) {
	t.Parallel()
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{ImagePullPolicy: corev1.PullNever}}, Containers: []corev1.Container{{}, {ImagePullPolicy: corev1.PullIfNotPresent}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullIfNotPresent}}}},
	}
	allowed := Allowed{VolumeTypes: []string{"image"}}
	require.NoError(t, Harden(&spec, allowed))
	require.Equal(t, corev1.PullNever, spec.InitContainers[0].ImagePullPolicy, "without the setting it is the author's")
	allowed.AlwaysPull = true
	require.NoError(t, Harden(&spec, allowed))
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		require.Equal(t, corev1.PullAlways, c.ImagePullPolicy)
	}
	require.Equal(t, corev1.PullAlways, spec.Volumes[0].Image.PullPolicy)
}

func requirement(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}
}

func nodeSelectorTerm(keys ...string) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for _, key := range keys {
		if key == metav1.ObjectNameField {
			t.MatchFields = append(t.MatchFields, requirement(key))
		} else {
			t.MatchExpressions = append(t.MatchExpressions, requirement(key))
		}
	}
	return t
}

func requiredNodes(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func preferredNodes(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	for i, t := range terms {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(i + 1), Preference: t})
	}
	return a
}

func TestNoNodeIsChosen(t *testing.T) {
	t.Parallel()
	host, name, zone := corev1.LabelHostname, metav1.ObjectNameField, corev1.LabelTopologyZone
	cases := map[string]struct{ in, want *corev1.NodeAffinity }{
		"a host":                        {in: requiredNodes(nodeSelectorTerm(host))},
		"a name":                        {in: requiredNodes(nodeSelectorTerm(name))},
		"a name in a zone":              {in: requiredNodes(nodeSelectorTerm(name, zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"a host or a zone":              {in: requiredNodes(nodeSelectorTerm(host), nodeSelectorTerm(zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"preferably a zone or a host":   {in: preferredNodes(nodeSelectorTerm(zone), nodeSelectorTerm(host)), want: preferredNodes(nodeSelectorTerm(zone))},
		"a term that matches no node":   {in: requiredNodes(nodeSelectorTerm())},
		"a preference without any wish": {in: preferredNodes(nodeSelectorTerm())},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want *corev1.Affinity
			if tc.want != nil {
				want = &corev1.Affinity{NodeAffinity: tc.want}
			}
			spec := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: tc.in}}
			require.Equal(t, want, hardened(t, spec, Allowed{SelectorLabels: []string{zone}}).Affinity)
		})
	}
}

func TestNodeSelector(t *testing.T) {
	t.Parallel()
	spec := corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "n", corev1.LabelArchStable: "arm64"}}
	spec = hardened(t, spec, Allowed{SelectorLabels: []string{corev1.LabelArchStable}})
	require.Equal(t, map[string]string{corev1.LabelArchStable: "arm64"}, spec.NodeSelector)
	spec = corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "n"}}
	require.Nil(t, hardened(t, spec, Allowed{}).NodeSelector)
}

// TestNodesAreSelectedByListedLabels: with any other label a peer could lead its pod to
// nodes that are set apart, and learn which there are.
func TestNodesAreSelectedByListedLabels(t *testing.T) {
	t.Parallel()
	const vault = "example.com/vault"
	beside := corev1.PodAffinityTerm{TopologyKey: vault, LabelSelector: &metav1.LabelSelector{}}
	others := beside
	others.Namespaces = []string{"kube-system"}
	for name, tc := range map[string]struct {
		spec  corev1.PodSpec
		field string
	}{
		"node selector": {corev1.PodSpec{NodeSelector: map[string]string{vault: "x"}}, "spec.nodeSelector"},
		"instance id":   {corev1.PodSpec{NodeSelector: map[string]string{"alpha.eksctl.io/instance-id": "i-1"}}, "spec.nodeSelector"},
		"required":      {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: requiredNodes(nodeSelectorTerm(corev1.LabelTopologyZone, vault))}}, "spec.affinity.nodeAffinity"},
		"preferred":     {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: preferredNodes(nodeSelectorTerm(corev1.LabelTopologyZone), nodeSelectorTerm(vault))}}, "spec.affinity.nodeAffinity"},
		"beside its own": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{others, beside}}}}, "spec.affinity.podAffinity"},
		"apart from its own": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: beside}}}}}, "spec.affinity.podAntiAffinity"},
		"spread": {corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: vault}}}, "spec.topologySpreadConstraints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message := requireRefused(t, tc.spec, Allowed{SelectorLabels: []string{corev1.LabelTopologyZone}}, reasons.NodeLabelRefused)
			require.Contains(t, message, tc.field+" selects nodes by the label ")
			require.Contains(t, message, "this cluster accepts from peers: topology.kubernetes.io/zone; its administrators can allow more by the setting sharing.selectorLabels")
			require.NoError(t, Harden(&tc.spec, Allowed{SelectorLabels: []string{corev1.LabelTopologyZone, vault, "alpha.eksctl.io/instance-id"}}))
		})
	}
}

func TestNodesAreSelectedByAnyLabel(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{"example.com/vault": true, corev1.LabelTopologyZone: true, "alpha.eksctl.io/instance-id": false} {
		err := Harden(&corev1.PodSpec{NodeSelector: map[string]string{key: "x"}}, Allowed{SelectorLabels: []string{AllKeys}})
		require.Equal(t, want, err == nil, "%s: %v", key, err)
	}
}

func TestSingleNode(t *testing.T) {
	t.Parallel()
	for _, key := range []string{corev1.LabelHostname, "hostname", "topology.hostpath.csi/node", "alpha.eksctl.io/instance-id"} {
		require.True(t, SingleNode(key), key)
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, corev1.LabelArchStable, "pool", "example.com/gpu"} {
		require.False(t, SingleNode(key), key)
	}
}

func TestPodAffinityIsAboutTheNamespacesOwnPods(t *testing.T) {
	t.Parallel()
	own := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	named, selected := *own.DeepCopy(), *own.DeepCopy()
	named.Namespaces = []string{"kube-system"}
	selected.NamespaceSelector = &metav1.LabelSelector{}
	terms := func(t ...corev1.PodAffinityTerm) []corev1.PodAffinityTerm { return t }
	weighted := func(terms ...corev1.PodAffinityTerm) (out []corev1.WeightedPodAffinityTerm) {
		for _, t := range terms {
			out = append(out, corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: t})
		}
		return out
	}

	spec := corev1.PodSpec{Affinity: &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  terms(own, named),
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(selected),
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  terms(selected),
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(named, own),
		},
	}}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Equal(t, terms(own), spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	require.Empty(t, spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	require.Empty(t, spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	require.Equal(t, weighted(own), spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)

	spec = corev1.PodSpec{Affinity: &corev1.Affinity{
		PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(named)},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted(selected)},
	}}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Nil(t, spec.Affinity)
}

// parsed returns the tolerations of taints as kubectl writes them.
func parsed(t testing.TB, taints ...string) []corev1.Toleration {
	t.Helper()
	var out []corev1.Toleration
	for _, taint := range taints {
		toleration, err := ParseToleration(taint)
		require.NoError(t, err, taint)
		out = append(out, toleration)
	}
	return out
}

func TestParseToleration(t *testing.T) {
	t.Parallel()
	for taint, want := range map[string]corev1.Toleration{
		"dedicated":                  {Key: "dedicated", Operator: corev1.TolerationOpExists},
		"dedicated=peers":            {Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "peers"},
		"dedicated=peers:NoSchedule": {Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "peers", Effect: corev1.TaintEffectNoSchedule},
		"dedicated=:NoSchedule":      {Key: "dedicated", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule},
		"example.com/slow:NoExecute": {Key: "example.com/slow", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	} {
		require.Equal(t, []corev1.Toleration{want}, parsed(t, taint), taint)
	}
	for _, taint := range []string{"", "=x", ":NoSchedule", "a b", "a=b c", "a=b:", "a=b:Never", "a=b=c", "node-role.kubernetes.io/control-plane",
		corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, "virtual-node.liqo.io/not-allowed=true:NoExecute"} {
		_, err := ParseToleration(taint)
		require.Error(t, err, taint)
	}
}

// TestTolerationsWithinThoseAllowed: of a toleration that is wider than the administrator
// allows, the part that is allowed stays.
func TestTolerationsWithinThoseAllowed(t *testing.T) {
	t.Parallel()
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	equal := func(value string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: value, Effect: effect}
	}
	const keeps, evicts = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	for name, tc := range map[string]struct {
		allowed  []string
		in, want []corev1.Toleration
	}{
		"another value":         {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("pci", keeps)}, nil},
		"another effect":        {[]string{"dedicated=peers:NoSchedule"}, []corev1.Toleration{equal("peers", evicts)}, nil},
		"another key":           {[]string{"dedicated=peers"}, []corev1.Toleration{exists("vault", "")}, nil},
		"narrower":              {[]string{"dedicated"}, []corev1.Toleration{equal("peers", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"every key":             {[]string{"dedicated=peers"}, []corev1.Toleration{exists("", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"several parts":         {[]string{"dedicated:NoSchedule", "dedicated=peers"}, []corev1.Toleration{exists("dedicated", "")}, []corev1.Toleration{exists("dedicated", keeps), equal("peers", "")}},
		"twice":                 {[]string{"dedicated=peers"}, []corev1.Toleration{equal("peers", ""), exists("dedicated", "")}, []corev1.Toleration{equal("peers", "")}},
		"all taints":            {[]string{AllKeys}, []corev1.Toleration{exists("vault", ""), equal("pci", evicts)}, []corev1.Toleration{exists("vault", ""), equal("pci", evicts)}},
		"all, but its own use":  {[]string{AllKeys}, []corev1.Toleration{exists("", keeps), exists("node-role.kubernetes.io/control-plane", ""), exists("node.kubernetes.io/unschedulable", "")}, nil},
		"all, and a key":        {[]string{AllKeys, "dedicated=peers"}, []corev1.Toleration{exists("", keeps)}, []corev1.Toleration{equal("peers", keeps)}},
		"by another comparison": {[]string{"dedicated=7"}, []corev1.Toleration{{Key: "dedicated", Operator: "Gt", Value: "7"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed := Allowed{Tolerations: parsed(t, tc.allowed...)}
			require.Equal(t, tc.want, hardened(t, corev1.PodSpec{Tolerations: tc.in}, allowed).Tolerations)
		})
	}
}

func TestEphemeralVolumes(t *testing.T) {
	t.Parallel()
	all, disk := []string{"*"}, []string{"disk", "fast"}
	exists := func(class string) bool { return class == "slow" || class == "disk" }
	for name, tc := range map[string]struct {
		spec    corev1.PersistentVolumeClaimSpec
		notes   map[string]string
		classes []string
		usual   string
		refused string
	}{
		"of a class that is not": {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("manual")}, classes: all, refused: `"manual" would get a volume that is there already`},
		"of any class":           {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}, classes: all},
		"the default is shared":  {classes: disk, usual: "disk"},
		"no default class":       {classes: all, refused: "there is no default one"},
		"of another class":       {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}, classes: disk, refused: "spec.storageClassName: this cluster accepts from peers disk, fast"},
		"without class":          {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}, classes: all, usual: "disk", refused: "without a class"},
		"class by annotation":    {notes: map[string]string{corev1.BetaStorageClassAnnotation: ""}, classes: all, refused: "volume.beta.kubernetes.io/storage-class: this cluster accepts from peers spec.storageClassName"},
		"a volume":               {spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, classes: all, refused: "spec.volumeName"},
		"a choice of volumes":    {spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}}, classes: all, refused: "spec.selector"},
		"data of others":         {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: new("bank")}}, classes: all, refused: "spec.dataSourceRef.namespace"},
		"data of its own":        {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}}, classes: all, usual: "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: tc.notes}, Spec: tc.spec},
			}}}
			spec := corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}}
			allowed := Allowed{VolumeTypes: []string{"ephemeral"}, StorageClasses: tc.classes, ProvisionedClass: exists, DefaultStorageClass: func() string { return tc.usual }}
			if tc.refused == "" {
				require.Equal(t, []corev1.Volume{volume}, hardened(t, spec, allowed).Volumes)
				return
			}
			require.Contains(t, requireRefused(t, spec, allowed, reasons.VolumeClaimRefused), tc.refused)
		})
	}
}

// TestClaimsOfPeers: a claim whose class makes no volumes would get one that is there already.
func TestClaimsOfPeers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class   *string
		classes []string
		refused bool
	}{
		"a class that makes volumes": {new("disk"), []string{"*"}, false},
		"a class that is not":        {new("manual"), []string{"*"}, true},
		"the same, shared by name":   {new("manual"), []string{"*", "manual"}, false},
		"none are shared":            {new("manual"), nil, false}, // the policy refuses it
		"no class":                   {new(""), []string{"*"}, false},
		"the default, of which none": {nil, []string{"*"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Allowed{StorageClasses: tc.classes, ProvisionedClass: func(class string) bool { return class == "disk" }}
			why := b.RefuseClaim(&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: tc.class}})
			require.Equal(t, tc.refused, why != "", why)
			if tc.refused {
				require.Contains(t, why, "sharing.storageClasses")
			}
		})
	}
	require.True(t, Provisioned(&storagev1.StorageClass{Provisioner: "csi.example.com"}))
	require.False(t, Provisioned(&storagev1.StorageClass{Provisioner: "kubernetes.io/no-provisioner"}))
	require.False(t, Provisioned(&storagev1.StorageClass{}))
}
