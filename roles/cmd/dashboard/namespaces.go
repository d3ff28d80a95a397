package dashboard

import (
	"cmp"
	"slices"

	"github.com/liqod/liqod/roles/cmd/report"
)

// shownPods is how many pods of a namespace the page lists, those in trouble first.
const shownPods = 100

// Namespace is an offloaded namespace, and where its pods run.
type Namespace struct {
	report.Namespace
	Level  report.Level `json:"level"`
	Places []Place      `json:"places"`
	// Broken is how many pods have a problem.
	Broken int `json:"broken"`
	// Waiting is how many others start, end, wait or have failed.
	Waiting int   `json:"waiting"`
	Pods    []Pod `json:"pods"`
	// More is how many pods are not in Pods.
	More int `json:"more"`
	// Differences say what does not follow the pods into providers.
	Differences []string `json:"differences"`
	// Unread says that the pods could not be read.
	Unread bool `json:"unread"`
}

// Kinds of places.
const (
	placeHere    = "here"
	placePeer    = "peer"
	placeNowhere = "nowhere"
)

// Place is where pods run: this cluster, a peer, or no node yet.
type Place struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Pods  int    `json:"pods"`
	Ready int    `json:"ready"`
	// Note says why the namespace is not ready there.
	Note string `json:"note"`
}

// Pod is a pod of an offloaded namespace.
type Pod struct {
	report.Pod
	Place string `json:"place"`
}

func namespace(p *picture, from *report.Namespace, findings []report.Finding) Namespace {
	out := Namespace{
		Namespace: *from, Level: levelOf(findings, "namespace "+from.Name), Places: []Place{{Kind: placeHere, Name: p.ClusterID}}, Differences: p.Differences(from.Name),
	}
	for _, in := range from.Peers {
		place := Place{Kind: placePeer, Name: in.ClusterID}
		if !in.Ready {
			place.Note = cmp.Or(in.Message, "not ready there")
		}
		out.Places = append(out.Places, place)
	}
	for _, pod := range p.PodsOf(from.Name) {
		out.count(p.ClusterID, pod)
	}
	if err, asked := p.Whole[from.Name]; err != nil || !asked {
		out.Unread = true
		out.Level = report.Worse(out.Level, report.Unknown)
	}
	worstPods(out.Pods)
	if len(out.Pods) > shownPods {
		out.More = len(out.Pods) - shownPods
		out.Pods = out.Pods[:shownPods]
	}
	return out
}

// worstPods sorts pods, the worst first.
func worstPods(pods []Pod) {
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), cmp.Compare(a.Name, b.Name))
	})
}

// shownPod is a pod as the page lists it. One that has not ended and is not ready is at least a warning.
func shownPod(pod report.Pod, place string) Pod {
	if !pod.Ready && !pod.Ended {
		pod.Level = report.Worse(pod.Level, report.Warning)
	}
	return Pod{pod, place}
}

// count adds a pod to the place where it runs. Pods that status does not count do not change the
// level of the namespace.
func (n *Namespace) count(clusterID string, pod report.Pod) {
	kind, name := placeOf(clusterID, pod)
	if pod.Judged {
		n.Level = report.Worse(n.Level, pod.Level)
	}
	shown := shownPod(pod, name)
	n.Pods = append(n.Pods, shown)
	switch shown.Level {
	case report.Problem:
		n.Broken++
	case report.Warning:
		n.Waiting++
	}
	if pod.Ended {
		return
	}
	i := slices.IndexFunc(n.Places, func(place Place) bool { return place.Kind == kind && place.Name == name })
	if i < 0 {
		i = len(n.Places)
		n.Places = append(n.Places, Place{Kind: kind, Name: name})
	}
	n.Places[i].Pods++
	if pod.Ready {
		n.Places[i].Ready++
	}
}

// placeOf says where a pod runs.
func placeOf(clusterID string, pod report.Pod) (kind, name string) {
	switch {
	case pod.Node == "":
		return placeNowhere, "no node yet"
	case pod.Peer != "":
		return placePeer, pod.Peer
	}
	return placeHere, clusterID
}
