package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ParseToleration reads a taint as kubectl writes it, key[=value][:effect], and returns the
// toleration of all that it stands for. A taint without value stands for each value, one
// without effect for each effect. Taints that keep nodes for this cluster's own use, and
// those that Kubernetes sets itself, are not accepted. AllKeys stands for all taints that are.
func ParseToleration(taint string) (corev1.Toleration, error) {
	if taint == AllKeys {
		return corev1.Toleration{Operator: corev1.TolerationOpExists}, nil
	}
	rest, effect, _ := strings.Cut(taint, ":")
	key, value, valued := strings.Cut(rest, "=")
	out := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)}
	if valued {
		out.Operator, out.Value = corev1.TolerationOpEqual, value
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	switch {
	case len(validation.IsQualifiedName(key)) > 0, len(validation.IsValidLabelValue(value)) > 0:
		return corev1.Toleration{}, fmt.Errorf("%q is not a taint", taint)
	case strings.Contains(taint, ":") && !slices.Contains(effects, out.Effect):
		return corev1.Toleration{}, fmt.Errorf("%q has no effect of taints", taint)
	case reserved(key):
		return corev1.Toleration{}, fmt.Errorf("taint %s keeps nodes for the cluster's own use, or tells of trouble", key)
	}
	return out, nil
}

// tolerations returns the parts of a peer's tolerations that allowed covers. Without any
// that is what every pod tolerates for a while: a node that is not ready or not reachable.
// No toleration reaches nodes kept for this cluster's own use: not its control plane, not
// nodes that are cordoned or in trouble, and not its own virtual nodes, from where the pod
// would be reflected again.
func tolerations(in, allowed []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i := range in {
		t := in[i]
		switch {
		case t.Key == "":
			if noExecute(t) {
				out = addTolerations(out, narrowed(t, corev1.TaintNodeNotReady), narrowed(t, corev1.TaintNodeUnreachable))
			}
			out = addTolerations(out, parts(t, allowed)...)
		case t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable:
			if noExecute(t) {
				t.Effect = corev1.TaintEffectNoExecute
				out = addTolerations(out, t)
			}
		case reserved(t.Key):
		default:
			out = addTolerations(out, parts(t, allowed)...)
		}
	}
	return out
}

// parts returns the parts of a toleration that are within those allowed: the toleration
// itself where one of them covers all of it.
func parts(t corev1.Toleration, allowed []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i := range allowed {
		part, ok := within(t, allowed[i])
		switch {
		case !ok:
		case part == t:
			return []corev1.Toleration{t}
		default:
			out = append(out, part)
		}
	}
	return out
}

// within returns the part of t that most covers, and false if there is none.
func within(t, most corev1.Toleration) (corev1.Toleration, bool) {
	if most.Key == "" {
		return t, t.Key != "" // without a key it would cover taints of this cluster's own use
	}
	if t.Key == "" && t.Operator == corev1.TolerationOpExists {
		t.Key = most.Key
	}
	if t.Key != most.Key {
		return t, false
	}
	if most.Operator == corev1.TolerationOpEqual {
		switch {
		case t.Operator == corev1.TolerationOpExists:
			t.Operator, t.Value = corev1.TolerationOpEqual, most.Value
		case t.Operator != "" && t.Operator != corev1.TolerationOpEqual, t.Value != most.Value:
			return t, false
		}
	}
	if most.Effect == "" || t.Effect == most.Effect {
		return t, true
	}
	wide := t.Effect == ""
	t.Effect = most.Effect
	return t, wide
}

func noExecute(t corev1.Toleration) bool {
	return t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
}

func narrowed(t corev1.Toleration, key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoExecute, TolerationSeconds: t.TolerationSeconds}
}

// addTolerations appends the tolerations that are not there yet.
func addTolerations(have []corev1.Toleration, more ...corev1.Toleration) []corev1.Toleration {
	for i := range more {
		same := func(t corev1.Toleration) bool { return t.MatchToleration(&more[i]) }
		if !slices.ContainsFunc(have, same) {
			have = append(have, more[i])
		}
	}
	return have
}

// reserved tells whether taints of that key keep nodes for this cluster's own use.
func reserved(key string) bool {
	switch key {
	case "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/controlplane",
		"node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd",
		offloadingv1beta1.VirtualNodeTaintKey:
		return true
	}
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}
