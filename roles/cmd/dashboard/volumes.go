package dashboard

import (
	"cmp"
	"slices"

	"github.com/liqod/liqod/roles/cmd/report"
)

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
	out = []Volume{}
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
