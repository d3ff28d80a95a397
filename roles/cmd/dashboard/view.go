package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

type virtualNode = offloadingv1beta1.VirtualNode

// Sections of the page, by the names that page.js has for them.
const (
	sectionClusters   = "clusters"
	sectionTraffic    = "traffic"
	sectionCapacity   = "capacity"
	sectionNamespaces = "namespaces"
	sectionVolumes    = "volumes"
	sectionHosted     = "hosted"
	sectionParts      = "parts"
	sectionEvents     = "events"
)

// View is the content of the page.
type View struct {
	Cluster  string       `json:"cluster"`
	Health   report.Level `json:"health"`
	Headline string       `json:"headline"`
	// Trouble says why the state is not that of now; empty if it is.
	Trouble string `json:"trouble"`
	// Taken is when the state was read, by the cluster's clock. It is zero if nothing was.
	Taken time.Time `json:"taken,omitzero"`
	// Every is after how many seconds the page asks again, and Patience after how many without an answer it calls
	// this state old.
	Every      float64     `json:"every"`
	Patience   float64     `json:"patience"`
	Version    string      `json:"version"`
	Namespace  string      `json:"namespace"`
	Kubernetes string      `json:"kubernetes"`
	Unread     []Unread    `json:"unread"`
	Problems   []Problem   `json:"problems"`
	Peers      []Peer      `json:"peers"`
	Traffic    []Traffic   `json:"traffic"`
	Namespaces []Namespace `json:"namespaces"`
	Volumes    []Volume    `json:"volumes"`
	// MoreVolumes is how many volumes are not in Volumes. Kept describes data that is kept.
	MoreVolumes int           `json:"moreVolumes"`
	Kept        string        `json:"kept"`
	Hosted      []Hosted      `json:"hosted"`
	Parts       []report.Role `json:"parts"`
	Events      []Event       `json:"events"`
}

// Unread is a read that failed, the reason, and the section that lacks it.
type Unread struct {
	Section string `json:"section"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

// Problem is a finding about one thing, and where that is.
type Problem struct {
	report.Folded
	Where string `json:"where"`
	Fix   []Step `json:"fix"`
}

// Hosted is a namespace of this cluster in which a peer runs pods.
type Hosted struct {
	report.Twin
	// Pods have not ended. Of those that are not ready, Troubled has the first ones, the worst first.
	Pods     int   `json:"pods"`
	Ready    int   `json:"ready"`
	Broken   int   `json:"broken"`
	Troubled []Pod `json:"troubled"`
}

// view judges a picture. It is pure.
func view(p *picture) *View {
	status, findings := report.Summarize(p.Snapshot), report.Check(p.Snapshot)
	v := &View{
		Cluster: p.ClusterID, Taken: p.Taken, Version: status.Version, Namespace: p.Namespace, Kubernetes: p.Kubernetes,
		Unread: unread(p), Traffic: traffic(p, status.Peers), Kept: status.Kept, Hosted: hosted(p), Parts: status.Roles, Events: events(p),
	}
	problems := report.Fold(status.Problems, slices.Concat(status.Problems, status.Warnings))
	for _, f := range problems {
		v.addProblem(f, p.Program)
	}
	for i := range status.Peers {
		v.Peers = append(v.Peers, peer(p, &status.Peers[i], findings))
	}
	for i := range status.Namespaces {
		v.Namespaces = append(v.Namespaces, namespace(p, &status.Namespaces[i], findings))
	}
	slices.SortStableFunc(v.Namespaces, func(a, b Namespace) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	v.Volumes, v.MoreVolumes = volumes(p)
	v.headline(status, problems)
	return v
}

// nothing is the view while the cluster has not answered yet.
func nothing(err error) *View {
	return &View{Health: report.Unknown, Headline: "unknown", Trouble: err.Error()}
}

// outdated is a view that was true when it was taken. The state of now is unknown.
func (v *View) outdated(err error) *View {
	out := *v
	out.Health, out.Headline, out.Trouble = report.Unknown, "unknown", err.Error()
	return &out
}

// headline says how everything is. Something that could not be read is unknown.
func (v *View) headline(status *report.Status, problems []report.Folded) {
	v.Health = status.Health
	levels := map[report.Level]int{}
	for _, f := range problems {
		levels[f.Level]++
	}
	for i := range v.Namespaces {
		if level := v.Namespaces[i].Level; level != report.Warning { // pods that start are none
			v.Health = report.Worse(v.Health, level)
		}
	}
	say, missing := report.Tally(levels), 0
	for _, u := range v.Unread {
		told := slices.ContainsFunc(v.Problems, func(p Problem) bool { return p.Subject == u.What })
		if u.Section != sectionEvents && u.Section != sectionTraffic && !told {
			missing++
		}
	}
	if missing > 0 {
		say = append(say, fmt.Sprintf("%d not readable", missing))
		v.Health = report.Worse(v.Health, report.Unknown)
	}
	switch {
	case len(say) > 0:
	case v.Health == report.OK:
		say = []string{"healthy"}
	default:
		say = []string{string(v.Health)}
	}
	v.Headline = strings.Join(say, ", ")
}

// addProblem adds a finding, or its peer to a problem that is the same with another peer.
func (v *View) addProblem(f report.Folded, program string) {
	p := Problem{Folded: f, Where: cmp.Or(f.Peer, f.Section), Fix: steps(f.Fix, program)}
	for i := range v.Problems {
		if same := &v.Problems[i]; f.Peer != "" && same.Level == p.Level && same.Subject == p.Subject && same.Message == p.Message && slices.Equal(same.Fix, p.Fix) {
			same.Where += ", " + p.Where
			same.Therefore = append(same.Therefore, p.Therefore...)
			return
		}
	}
	v.Problems = append(v.Problems, p)
}

// sectionOf is the section that lacks an unread part of a snapshot.
func sectionOf(what string) string {
	switch what {
	case report.ReadVirtualNodes, report.ReadNodes:
		return sectionCapacity
	case report.ReadOffloadings, report.ReadPods:
		return sectionNamespaces
	case report.ReadClaims, report.ReadStored:
		return sectionVolumes
	case report.ReadMaps, report.ReadQuotas:
		return sectionHosted
	case report.ReadInstallation, report.ReadLeases, report.ReadVKubelets, report.ReadDaemonSets, report.ReadRolePods, report.ReadWebhooks, report.ReadConfiguration, report.ReadKinds:
		return sectionParts
	}
	return sectionClusters
}

func unread(p *picture) (out []Unread) {
	for _, what := range slices.Sorted(maps.Keys(p.Unread)) {
		out = append(out, Unread{Section: sectionOf(what), What: what, Why: p.Unread[what].Error()})
	}
	slices.SortFunc(p.unread, func(a, b Unread) int { return cmp.Compare(a.What, b.What) })
	return append(out, p.unread...)
}

// hosted are the namespaces of peers in this cluster.
func hosted(p *picture) (out []Hosted) {
	for _, twin := range p.Twins() {
		of := Hosted{Twin: twin}
		of.count(p)
		out = append(out, of)
	}
	slices.SortFunc(out, func(a, b Hosted) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}

// count adds the pods of a namespace that a peer has there.
func (h *Hosted) count(p *picture) {
	for _, pod := range p.PodsOf(h.Namespace) {
		if pod.Origin != h.Peer || pod.Ended {
			continue
		}
		h.Pods++
		if pod.Level == report.Problem {
			h.Broken++
		}
		if pod.Ready {
			h.Ready++
		} else {
			h.Troubled = append(h.Troubled, shownPod(pod, p.ClusterID))
		}
	}
	worstPods(h.Troubled)
	h.Troubled = h.Troubled[:min(len(h.Troubled), shownPods)]
}

// shownEvents is how many events the page lists, the newest.
const shownEvents = 100

// Event is an event that concerns liqod.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	// Others is how many further objects have such an event.
	Others int `json:"others"`
	// From is the provider that the event comes from; empty if it is of this cluster.
	From string `json:"from"`
}

// alike is what equal events have in common. Their objects have one kind and namespace, and other names.
type alike struct{ kind, namespace, level, reason, message, from string }

// amounts are the numbers in a message, such as of milliseconds.
var amounts = regexp.MustCompile(`\d+`)

func likeness(e *corev1.Event) alike {
	about := e.InvolvedObject
	message := strings.ReplaceAll(e.Message, about.Name, "")
	if e.Type != corev1.EventTypeWarning { // the numbers of warnings are codes
		message = amounts.ReplaceAllString(message, "")
	}
	return alike{about.Kind, about.Namespace, e.Type, e.Reason, message, e.Labels[offloadingv1beta1.OriginLabel]}
}

// events are the newest events, the newest first. Equal events are one, with the object and the words of
// the newest.
func events(p *picture) (out []Event) {
	slices.SortStableFunc(p.events, func(a, b corev1.Event) int { return report.EventTime(&b).Compare(report.EventTime(&a)) })
	place, names := map[alike]int{}, map[alike]map[string]bool{}
	for _, e := range p.events {
		key := likeness(&e)
		if names[key] == nil {
			names[key], place[key] = map[string]bool{}, len(out)
			out = append(out, shownEvent(&e))
		}
		names[key][e.InvolvedObject.Name] = true
		same, times := &out[place[key]], cmp.Or(e.Series, &corev1.EventSeries{Count: e.Count}).Count
		same.Count, same.Others = same.Count+max(times, 1), len(names[key])-1
	}
	return out[:min(len(out), shownEvents)]
}

// shownEvent is an event without the number of times that it happened.
func shownEvent(e *corev1.Event) Event {
	object := e.InvolvedObject.Kind + " " + strings.TrimPrefix(e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "/")
	return Event{Time: report.EventTime(e).UTC(), Warning: e.Type == corev1.EventTypeWarning, Object: object, Reason: e.Reason, Message: e.Message,
		From: e.Labels[offloadingv1beta1.OriginLabel]}
}

// shownVolumes is how many volumes the page lists, those in trouble first.
const shownVolumes = 100

// Volume is a volume of the class liqo that a claim of this cluster has, or had.
type Volume struct {
	report.StoredVolume
	Level report.Level `json:"level"`
	// Claim is the claim with its namespace.
	Claim string `json:"claim"`
}

// volumes are those of this cluster, the worst first. more is how many others there are.
func volumes(p *picture) (out []Volume, more int) {
	for _, v := range p.Storage().Volumes {
		out = append(out, Volume{v, volumeLevel(v), v.Namespace + "/" + v.Claim})
	}
	slices.SortStableFunc(out, func(a, b Volume) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	shown := min(len(out), shownVolumes)
	return out[:shown], len(out) - shown
}

// volumeLevel is how well a volume is. A claim may wait for its first pod for ever.
func volumeLevel(v report.StoredVolume) report.Level {
	switch {
	case v.Phase == report.VolumeLost:
		return report.Problem
	case v.Move != nil && v.Move.Stopped:
		return report.Warning
	}
	return report.OK
}
