package forge

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The rules for a field of an object that is sent to the provider.
const (
	kept    = "kept"
	removed = "removed"
	forced  = "forced"
	partly  = "kept in part"
	refused = "refused"
)

type rule struct{ fate, why string }

// with adds fields that have the same rule, whose names say why.
func with(table map[string]rule, fate string, fields ...string) map[string]rule {
	for _, f := range fields {
		table[f] = rule{fate, ""}
	}
	return table
}

// requireLines requires that a table has a line for each field of T, and none for others.
func requireLines[T, R any](t *testing.T, table map[string]R) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	var fields []string
	for i := range typ.NumField() {
		fields = append(fields, typ.Field(i).Name)
	}
	require.ElementsMatchf(t, fields, slices.Collect(maps.Keys(table)), "fields of %s: decide what happens to a new one", typ)
}

// podFields has a rule and a reason for each field of the spec of an offloaded pod.
var podFields = with(map[string]rule{
	"Volumes":                      {partly, "tokens of service accounts come from Secrets, or not at all; ephemeral ones may use claims of home; pod certificates are refused"},
	"InitContainers":               {kept, "native sidecars too; see containerFields"},
	"Containers":                   {kept, "see containerFields"},
	"EphemeralContainers":          {partly, "those that have not begun; without mounts of the injected token volume"},
	"NodeSelector":                 {removed, "names nodes of this cluster; the patch may set another"},
	"ServiceAccountName":           {removed, "an identity of this cluster"},
	"DeprecatedServiceAccount":     {removed, "an identity of this cluster"},
	"AutomountServiceAccountToken": {forced, "false: no token of the provider's"},
	"NodeName":                     {removed, "the virtual node"},
	"HostNetwork":                  {forced, "false"},
	"HostPID":                      {forced, "false"},
	"HostIPC":                      {forced, "false"},
	"ShareProcessNamespace":        {kept, "among the pod's own containers"},
	"ImagePullSecrets":             {kept, "Secrets are reflected"},
	"Affinity":                     {removed, "names nodes of this cluster; presets and the patch may set another"},
	"SchedulerName":                {removed, "a scheduler of this cluster"},
	"Tolerations":                  {partly, "without the virtual node's"},
	"HostAliases":                  {kept, "with the names of this cluster's API server where it can be reached"},
	"PriorityClassName":            {removed, "a class of this cluster"},
	"Priority":                     {removed, "the API server refuses one that does not come from a class"},
	"ReadinessGates":               {removed, "their conditions are set, and judged, in this cluster"},
	"RuntimeClassName":             {partly, "without liqo"},
	"PreemptionPolicy":             {removed, "goes with the priority"},
	"Overhead":                     {removed, "of a runtime class of this cluster"},
	"TopologySpreadConstraints":    {removed, "names nodes of this cluster"},
	"SchedulingGates":              {removed, "a pod that has a node has none"},
	"ResourceClaims":               {refused, "name devices of this cluster"},
	"SchedulingGroup":              {removed, "names an object of this cluster's scheduler"},
}, kept, "RestartPolicy", "TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "SecurityContext", "Hostname",
	"Subdomain", "DNSConfig", "EnableServiceLinks", "SetHostnameAsFQDN", "OS", "HostUsers", "Resources", "HostnameOverride")

// containerFields has a rule and a reason for each field of a container.
var containerFields = with(map[string]rule{
	"Ports":        {partly, "without the host ports of a pod on the host's network"},
	"Env":          {partly, "the name of the service account is this cluster's; after those that lead to its API server"},
	"VolumeMounts": {partly, "without those of an injected token volume that is not carried"},
}, kept, "Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Resources", "ResizePolicy", "RestartPolicy",
	"RestartPolicyRules", "VolumeDevices", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle",
	"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")

// forcedTo has the values of forced fields.
var forcedTo = map[string]any{
	"AutomountServiceAccountToken": new(bool),
	"HostNetwork":                  false,
	"HostPID":                      false,
	"HostIPC":                      false,
}

func TestEveryFieldOfAPodSpecHasARule(t *testing.T) {
	requireLines[corev1.PodSpec](t, podFields)
	typ := reflect.TypeFor[corev1.PodSpec]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		rule := podFields[name]
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
			fill(reflect.ValueOf(&pod.Spec).Elem().Field(i), 0)
			want := reflect.ValueOf(pod.Spec).Field(i)
			require.False(t, want.IsZero(), "the test must set the field")
			if name == "Volumes" {
				require.ErrorContains(t, errorOf(ShadowPod(pod, PodOptions{})), "podCertificate")
				return
			}
			shadow, err := ShadowPod(pod, PodOptions{})
			if rule.fate == refused {
				require.ErrorAs(t, err, new(*Refused))
				return
			}
			require.NoError(t, err)
			got := reflect.ValueOf(shadow.Spec.Pod).Field(i)
			switch rule.fate {
			case kept, partly:
				require.Equal(t, want.Interface(), got.Interface())
			case removed:
				require.True(t, got.IsZero(), "want the zero value, got %v", got)
			case forced:
				require.Equal(t, forcedTo[name], got.Interface())
			}
		})
	}
}

func TestEveryFieldOfAContainerHasARule(t *testing.T) {
	requireLines[corev1.Container](t, containerFields)
	var full corev1.Container
	fill(reflect.ValueOf(&full).Elem(), 0)
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{*full.DeepCopy()}, InitContainers: []corev1.Container{*full.DeepCopy()}}}
	shadow, err := ShadowPod(pod, PodOptions{})
	require.NoError(t, err)
	require.Equal(t, full, shadow.Spec.Pod.Containers[0])
	require.Equal(t, full, shadow.Spec.Pod.InitContainers[0])
}

// TestEveryKindOfVolumeIsKept requires that all volume sources are sent, because only the
// provider can decide which ones its nodes can mount. Projected volumes have a test of
// their own.
func TestEveryKindOfVolumeIsKept(t *testing.T) {
	typ := reflect.TypeFor[corev1.VolumeSource]()
	for i := range typ.NumField() {
		if typ.Field(i).Name == "Projected" {
			continue
		}
		volume := corev1.Volume{Name: "v"}
		fill(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), 0)
		require.False(t, reflect.ValueOf(volume.VolumeSource).Field(i).IsZero(), "the test must set the field")
		shadow, err := ShadowPod(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}}}, PodOptions{})
		require.NoError(t, err, typ.Field(i).Name)
		require.Equal(t, []corev1.Volume{volume}, shadow.Spec.Pod.Volumes)
	}
}

// sourceFields has a rule and a reason for each source of a projected volume.
var sourceFields = map[string]rule{
	"Secret":              {kept, "Secrets are reflected"},
	"DownwardAPI":         {kept, ""},
	"ConfigMap":           {kept, "ConfigMaps are reflected"},
	"ServiceAccountToken": {removed, "of an identity of the provider's"},
	"ClusterTrustBundle":  {kept, "the provider's of that name"},
	"PodCertificate":      {refused, "of an identity of the provider's"},
}

func TestEverySourceOfAProjectedVolumeHasARule(t *testing.T) {
	requireLines[corev1.VolumeProjection](t, sourceFields)
	typ := reflect.TypeFor[corev1.VolumeProjection]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var source corev1.VolumeProjection
		fill(reflect.ValueOf(&source).Elem().Field(i), 0)
		shadow, err := ShadowPod(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{projected("v", *source.DeepCopy())}}}, PodOptions{})
		if sourceFields[name].fate == refused {
			require.ErrorAs(t, err, new(*Refused), name)
			continue
		}
		require.NoError(t, err, name)
		want := []corev1.VolumeProjection{source}
		if sourceFields[name].fate == removed {
			want = []corev1.VolumeProjection{}
		}
		require.Equal(t, want, shadow.Spec.Pod.Volumes[0].Projected.Sources, name)
	}
}

// The cluster that a field of a pod's status comes from.
const (
	theirs = "the provider's"
	ours   = "this cluster's"
	both   = "made of both; see the tests of Status"
)

// statusFields has the fields of a pod's status, by the cluster that they come from.
var statusFields = map[string][]string{
	theirs: {"Message", "Reason", "StartTime", "Resize"},
	ours: {"NominatedNodeName", "QOSClass", "ResourceClaimStatuses", "ExtendedResourceClaimStatus",
		"NodeAllocatableResourceClaimStatuses"},
	both: {"ObservedGeneration", "Phase", "Conditions", "HostIP", "HostIPs", "PodIP", "PodIPs", "InitContainerStatuses",
		"ContainerStatuses", "EphemeralContainerStatuses", "AllocatedResources", "Resources"},
}

func TestEveryFieldOfAPodStatusHasAnOwner(t *testing.T) {
	owners := map[string]string{}
	for owner, fields := range statusFields {
		for _, f := range fields {
			owners[f] = owner
		}
	}
	requireLines[corev1.PodStatus](t, owners)
	typ := reflect.TypeFor[corev1.PodStatus]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		in := published()
		in.Remote = in.Remote.DeepCopy()
		local := reflect.ValueOf(*in.Local.Status.DeepCopy()).Field(i).Interface()
		fill(reflect.ValueOf(&in.Remote.Status).Elem().Field(i), 0)
		got := reflect.ValueOf(Status(in)).Field(i).Interface()
		switch owners[name] {
		case theirs:
			require.Equal(t, reflect.ValueOf(in.Remote.Status).Field(i).Interface(), got, name)
		case ours:
			require.Equal(t, local, got, name)
		}
	}
}

func TestEveryFieldOfAContainerStatusComesHome(t *testing.T) {
	in := published()
	in.Remote = in.Remote.DeepCopy()
	in.Local.Status.ContainerStatuses, in.Shadow.Status.Restarts = nil, nil
	status := &in.Remote.Status.ContainerStatuses[0]
	name := status.Name
	fill(reflect.ValueOf(status).Elem(), 0)
	status.Name = name
	// The provider reports on what the pod asks for.
	c := &in.Local.Spec.Containers[0]
	c.Resources = *status.Resources.DeepCopy()
	c.VolumeMounts = []corev1.VolumeMount{{Name: status.VolumeMounts[0].Name, MountPath: status.VolumeMounts[0].MountPath}}
	require.Equal(t, []corev1.ContainerStatus{*status}, Status(in).ContainerStatuses)
}

func errorOf[T any](_ T, err error) error { return err }

// fill sets v and its fields to non-zero values, to a limited depth.
func fill(v reflect.Value, depth int) {
	if depth > 8 || !v.CanSet() {
		return
	}
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		*at = metav1.Unix(7, 0)
		return
	case *metav1.MicroTime:
		*at = metav1.MicroTime{Time: time.Unix(7, 0)}
		return
	case *resource.Quantity:
		*at = resource.MustParse("7")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	}
}
