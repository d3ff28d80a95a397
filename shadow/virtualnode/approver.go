package virtualnode

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

const (

	// A refused request is reviewed again until it is approveUntil old, because the status
	// of the vkubelet's pod may not have the pod's address yet. The delay grows from
	// approveFirst to approveRetry.
	approveFirst = 250 * time.Millisecond
	approveRetry = 5 * time.Second
	approveUntil = time.Hour
)

// ApproverConfig is the input of NewApprover. All fields are required unless their comment
// says otherwise.
type ApproverConfig struct {
	Base

	// Requests may be restricted to spec.signerName=kubernetes.io/kubelet-serving.
	Requests certificatesinformers.CertificateSigningRequestInformer
	// NodeAddress is an address at which every vkubelet may serve in addition to its own.
	// The zero value means none.
	NodeAddress netip.Addr
}

// Approver approves the serving certificates of vkubelets. It does not touch other
// certificate requests. It never denies a request.
type Approver struct {
	*loop.Loop

	cfg ApproverConfig

	told sync.Map // by name of the request: the last logged refusal
}

// NewApprover returns an Approver and registers its event handlers on the informers, which
// must be started afterwards. It starts nothing.
func NewApprover(cfg ApproverConfig) *Approver {
	a := &Approver{cfg: cfg}
	a.Loop = loop.New(loop.Config{Name: "servingcertificate", Sync: a.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.Requests.Informer(), requestKeys), loop.From(cfg.VirtualNodes.Informer(), loop.None), loop.From(cfg.Nodes.Informer(), loop.None))
	return a
}

// requestKeys returns the key of a request by a vkubelet for a serving certificate, and no
// key for any other request.
func requestKeys(csr *certificatesv1.CertificateSigningRequest) []loop.Key {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return nil
	}
	if _, ours := Requestor(csr.Spec.Username); !ours {
		return nil
	}
	return loop.Self(csr)
}

func (a *Approver) sync(ctx context.Context, key loop.Key) error {
	csr := store.Known(a.cfg.Requests.Lister().Get(key.Name))
	if csr == nil || decided(csr) || len(requestKeys(csr)) == 0 {
		a.told.Delete(key.Name)
		return nil
	}
	facts, err := a.facts(ctx, csr)
	if err != nil {
		return err
	}
	ok, reason := Approve(csr, facts)
	if !ok {
		return a.refuse(csr, facts.VirtualNode, reason)
	}
	return a.approve(ctx, csr, facts.VirtualNode)
}

func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) > 0 || slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

func (a *Approver) facts(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (Facts, error) {
	key, _ := Requestor(csr.Spec.Username)
	vn := store.Known(a.cfg.VirtualNodes.Lister().VirtualNodes(key.Namespace).Get(key.Name))
	if vn == nil {
		return Facts{}, nil
	}
	facts := Facts{VirtualNode: vn}
	others := namesakes(a.cfg.VirtualNodes.Lister(), vn.Name)
	node := store.Known(a.cfg.Nodes.Lister().Get(vn.Name))
	_, facts.Refused = refuse(vn, others, node)
	var err error
	facts.Addresses, err = a.addresses(ctx, vn)
	return facts, err
}

// addresses returns the addresses at which vn's vkubelet may serve. It lists the pods live:
// with a stale address, the certificate would be valid for another pod.
func (a *Approver) addresses(ctx context.Context, vn *offloadingv1beta1.VirtualNode) ([]netip.Addr, error) {
	pods, err := kubeletPods(ctx, a.cfg.Kube, vn)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, pod := range pods {
		addresses = append(addresses, podAddresses(pod, VirtualKubeletName(vn.Name))...)
	}
	if addr, err := netip.ParseAddr(vn.Spec.VirtualKubelet.NodeAddress); err == nil {
		addresses = append(addresses, addr.Unmap())
	}
	if a.cfg.NodeAddress.IsValid() {
		addresses = append(addresses, a.cfg.NodeAddress.Unmap())
	}
	return addresses, nil
}

// podAddresses returns the addresses of a pod, if it uses the ServiceAccount account and
// has not terminated.
func podAddresses(pod *corev1.Pod, account string) []netip.Addr {
	over := offloadingv1beta1.Ended(pod.Status.Phase)
	if over || pod.Spec.ServiceAccountName != account {
		return nil
	}
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, addr.Unmap())
		}
	}
	return addresses
}

func (a *Approver) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, vn *offloadingv1beta1.VirtualNode) error {
	approved := csr.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type:               certificatesv1.CertificateApproved,
		Status:             corev1.ConditionTrue,
		Reason:             reasons.VirtualNodeServing,
		Message:            fmt.Sprintf("the vkubelet of VirtualNode %s/%s serves this node at these addresses", vn.Namespace, vn.Name),
		LastUpdateTime:     metav1.NewTime(a.cfg.Clock.Now()),
		LastTransitionTime: metav1.NewTime(a.cfg.Clock.Now()),
	})
	_, err := a.cfg.Kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, approved, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("approving CertificateSigningRequest %s: %w", csr.Name, err)
	}
	a.told.Delete(csr.Name)
	a.cfg.Log.Info("serving certificate approved", zap.String("request", csr.Name), zap.String("virtualNode", vn.Namespace+"/"+vn.Name))
	return nil
}

// refuse leaves the request undecided, logs and records each reason once, and requeues the
// request while it is young: the missing facts may still appear. vn may be nil.
func (a *Approver) refuse(csr *certificatesv1.CertificateSigningRequest, vn *offloadingv1beta1.VirtualNode, reason string) error {
	if before, _ := a.told.Swap(csr.Name, reason); before != reason {
		a.cfg.Log.Warn("serving certificate not approved", zap.String("request", csr.Name), zap.String("requestor", csr.Spec.Username), zap.Error(errors.New(reason)))
		if vn != nil {
			a.cfg.Events.Eventf(vn, corev1.EventTypeWarning, reasons.CertificateRefused, "CertificateSigningRequest %s is not approved: %s", csr.Name, reason)
		}
	}
	if a.cfg.Clock.Since(csr.CreationTimestamp.Time) > approveUntil {
		return nil
	}
	return loop.After(approveDelay(a.cfg.Clock.Since(csr.CreationTimestamp.Time)))
}

// approveDelay returns the delay before the next review of a request of the given age: half
// the age, within the limits.
func approveDelay(age time.Duration) time.Duration {
	return min(max(age/2, approveFirst), approveRetry)
}

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// Facts are the inputs of the decision on a certificate request.
type Facts struct {
	// VirtualNode is the one whose vkubelet sent the request; nil: there is none.
	VirtualNode *offloadingv1beta1.VirtualNode
	// Refused says why the VirtualNode may not have a Node; empty: it may.
	Refused string
	// Addresses are the addresses at which that vkubelet may serve.
	Addresses []netip.Addr
}

// Approve decides on a request for a serving certificate. It returns true only if the
// vkubelet of facts.VirtualNode requests a certificate for its own node name and its own
// addresses. Otherwise the string is the reason for the refusal. It is pure.
func Approve(csr *certificatesv1.CertificateSigningRequest, facts Facts) (bool, string) {
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return false, fmt.Sprintf("the signer is %s: only %s is accepted", csr.Spec.SignerName, certificatesv1.KubeletServingSignerName)
	}
	vn := facts.VirtualNode
	key, ok := Requestor(csr.Spec.Username)
	if !ok || vn == nil || key.Namespace != vn.Namespace || key.Name != vn.Name {
		return false, fmt.Sprintf("the requestor %s is not the vkubelet of a VirtualNode", csr.Spec.Username)
	}
	if !valid(vn) || facts.Refused != "" {
		return false, fmt.Sprintf("VirtualNode %s/%s may not have a Node: %s", vn.Namespace, vn.Name, facts.Refused)
	}
	request, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return false, err.Error()
	}
	if err := cmp.Or(checkUsages(csr.Spec.Usages), checkSubject(request, vn.Name), checkNames(request, vn.Name, facts.Addresses)); err != nil {
		return false, err.Error()
	}
	return true, ""
}

func parseRequest(raw []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("the request is not one PEM block of type CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("checking the signature of the request: %w", err)
	}
	return request, nil
}

func checkUsages(have []certificatesv1.KeyUsage) error {
	accepted := []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
	}
	for _, usage := range have {
		if !slices.Contains(accepted, usage) {
			return fmt.Errorf("usage %q is not accepted: the usages must be %q, %q and at most %q",
				usage, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageKeyEncipherment)
		}
	}
	for _, usage := range []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth} {
		if !slices.Contains(have, usage) {
			return fmt.Errorf("usage %q is missing", usage)
		}
	}
	return nil
}

func checkSubject(request *x509.CertificateRequest, nodeName string) error {
	subject := request.Subject
	if want := nodeUserPrefix + nodeName; subject.CommonName != want {
		return fmt.Errorf("the common name is %q: it must be %q", subject.CommonName, want)
	}
	if !slices.Equal(subject.Organization, []string{nodesGroup}) {
		return fmt.Errorf("the organizations are %q: they must be exactly %q", subject.Organization, []string{nodesGroup})
	}
	// The signer copies a second common name or any other attribute into the certificate.
	if len(subject.Names) != 2 {
		return fmt.Errorf("the subject has %d attributes: it must have a common name and an organization only", len(subject.Names))
	}
	return nil
}

func checkNames(request *x509.CertificateRequest, nodeName string, addresses []netip.Addr) error {
	if len(request.EmailAddresses) > 0 || len(request.URIs) > 0 {
		return errors.New("email addresses and URIs are not accepted as names")
	}
	if len(request.DNSNames)+len(request.IPAddresses) == 0 {
		return errors.New("the request names no DNS name and no address")
	}
	for _, name := range request.DNSNames {
		if name != nodeName {
			return fmt.Errorf("DNS name %q is not the node's name %q", name, nodeName)
		}
	}
	for _, ip := range request.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.Contains(addresses, addr.Unmap()) {
			return fmt.Errorf("address %s is none of the vkubelet's: %s", ip, addresses)
		}
	}
	return nil
}
