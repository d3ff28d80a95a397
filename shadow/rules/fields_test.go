package rules

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

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
