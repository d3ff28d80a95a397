package link

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	corelisters "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

// Review is the input of the webhook's decision on a write of a ForeignCluster.
type Review struct {
	// New is the object being written. Old is the existing one, nil at creation.
	New, Old *corev1beta1.ForeignCluster
	// Others are the other ForeignClusters of this cluster.
	Others []*corev1beta1.ForeignCluster
	// ClusterID is this cluster's id.
	ClusterID string
}

// Judge returns the reason to refuse the write, or "", and the warnings for its author. It
// is pure. A refused object that bypasses the webhook has no effect; its status shows the
// reason.
func (r Review) Judge() (refused string, warnings []string) {
	spec := &r.New.Spec
	if r.Old == nil && spec.ClusterID == r.ClusterID {
		return fmt.Sprintf("this cluster itself has the id %s: a cluster cannot be a peer of itself; if the peer has the same id, one of them needs another id", r.ClusterID), nil
	}
	if spec.UserName != "" && !corev1beta1.ValidPeerUser(spec.ClusterID, spec.UserName) {
		return strangeUser(spec.ClusterID, spec.UserName), nil
	}
	if err := errors.Join(addresses(spec), request(&spec.Request)); err != nil {
		return store.OneLine(err), nil
	}
	return "", r.overlaps()
}

// addresses returns the errors in the peer's URLs, certificates and names.
func addresses(spec *corev1beta1.ForeignClusterSpec) error {
	return errors.Join(
		goodURL("spec.authUrl", spec.AuthURL, false), goodCA("spec.authCA", spec.AuthCA),
		goodURL("spec.apiServer.url", spec.APIServer.URL, false), goodCA("spec.apiServer.ca", spec.APIServer.CA),
		goodURL("spec.apiServer.proxyUrl", spec.APIServer.ProxyURL, true), goodName("spec.apiServer.serverName", spec.APIServer.ServerName),
	)
}

// goodURL checks what the schema does not: a URL must have a host, and no parts that would
// be ignored or that expose a secret to readers of the object. The error names only the
// field, not the value.
func goodURL(field, text string, userAccepted bool) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not a URL", field)
	case u.Hostname() == "":
		return fmt.Errorf("%s has no host", field)
	case u.User != nil && !userAccepted:
		return fmt.Errorf("%s contains a user name: liqod does not use it, and every reader of the ForeignCluster could see it", field)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s has a query or a fragment: scheme, host, port and path are accepted", field)
	}
	return nil
}

// goodCA checks that a text consists of PEM certificates only.
func goodCA(field, text string) error {
	if text == "" {
		return nil
	}
	count := 0
	block, rest := pem.Decode([]byte(text))
	for ; block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("%s holds a %.40q: only certificates are accepted", field, block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("%s: certificate %d cannot be read", field, count+1)
		}
		count++
	}
	if count == 0 || strings.TrimSpace(string(rest)) != "" {
		return fmt.Errorf("%s takes certificates as PEM (-----BEGIN CERTIFICATE-----)", field)
	}
	return nil
}

func goodName(field, name string) error {
	if _, err := netip.ParseAddr(name); name == "" || err == nil || len(validation.IsDNS1123Subdomain(name)) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes a DNS name or an IP address", field)
}

// request returns the errors in the capacity request.
func request(r *corev1beta1.CapacityRequest) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.Resources)) {
		if q := r.Resources[name]; q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("spec.request.resources.%s is %s: a negative amount is not accepted", name, q.String()))
		}
	}
	for field, set := range map[string]map[string]string{"nodeSelector": r.NodeSelector, "labels": r.Labels} {
		for _, key := range slices.Sorted(maps.Keys(set)) {
			for _, why := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(set[key])) {
				errs = append(errs, fmt.Errorf("spec.request.%s, label %.80q: %s", field, key, why))
			}
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// overlaps warns about overlapping address ranges of different peers.
func (r Review) overlaps() (warnings []string) {
	if r.Old != nil && slices.Equal(r.Old.Spec.AddressRanges, r.New.Spec.AddressRanges) {
		return nil
	}
	for _, other := range r.Others {
		for _, ours := range ipamv1alpha1.Ranges(r.New.Spec.AddressRanges) {
			for _, theirs := range ipamv1alpha1.Ranges(other.Spec.AddressRanges) {
				if ours.Overlaps(theirs) {
					warnings = append(warnings, fmt.Sprintf("spec.addressRanges: %s overlaps %s of ForeignCluster %s: endpoints of one of them lead to pods of the other", ours, theirs, other.Name))
				}
			}
		}
	}
	slices.Sort(warnings)
	return warnings[:min(len(warnings), maxOverlaps)]
}

// maxOverlaps is the maximum number of overlaps in the warnings.
const maxOverlaps = 3

// Rule is the webhook's rule for ForeignClusters.
type Rule struct {
	ForeignClusters corelisters.ForeignClusterLister
	// Synced reports whether ForeignClusters is known.
	Synced cache.InformerSynced
	// ClusterID is this cluster's id.
	ClusterID string
}

// Decide judges what is written. An error says that the cache could not be read.
func (r Rule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	return serve.Reviewed(req, r.Synced, "ForeignClusters", func(obj, old *corev1beta1.ForeignCluster) (serve.Decision, error) {
		others := store.Listed(r.ForeignClusters.List(labels.Everything()))
		others = slices.DeleteFunc(others, func(fc *corev1beta1.ForeignCluster) bool { return fc.Name == obj.Name })
		review := Review{New: obj, Old: old, Others: others, ClusterID: r.ClusterID}
		return serve.Verdict(review.Judge()), nil
	})
}
