package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/report"
)

// offer is the parent of the commands about offers.
func (c *commands) offer() *cobra.Command {
	return parent("offer", "Show and approve the offers of this cluster and of its peers", c.offerList(),
		c.offerJudge("approve", "Approve an offer", approve),
		c.offerJudge("revoke", "Withdraw the approval of an offer", disapprove))
}

func (c *commands) offerList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "Show the offers of this cluster and of its peers", Args: noArguments}
	var output string
	addChoice(cmd, &output, "output", "o", "print the ResourceOffers themselves", asYAML, asJSON)
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) error {
		list, err := to.liqo.SharingV1alpha1().ResourceOffers(metav1.NamespaceAll).List(cmd.Context(), metav1.ListOptions{})
		if err != nil {
			return unknown(explain(fmt.Errorf("listing ResourceOffers: %w", err)))
		}
		if output != "" {
			kind := sharingv1alpha1.SchemeGroupVersion.WithKind("ResourceOffer")
			return printList(cmd.OutOrStdout(), output, kind, store.Pointers(list.Items))
		}
		return printOffers(cmd.OutOrStdout(), list.Items)
	}))
	return cmd
}

// printOffers prints a line for each offer. Offers that wait for a person come first.
func printOffers(out io.Writer, offers []sharingv1alpha1.ResourceOffer) error {
	if len(offers) == 0 {
		return say(out, "no offers: neither from this cluster nor from its peers")
	}
	slices.SortFunc(offers, func(a, b sharingv1alpha1.ResourceOffer) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return printText(out, report.Table("NAMESPACE\tNAME\tPROVIDER\tCONSUMER\tCPU\tMEMORY\tSTATE\tMESSAGE", offers, func(o sharingv1alpha1.ResourceOffer) string {
		hard := o.Spec.ResourceQuota.Hard
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", o.Namespace, o.Name, o.Spec.ProviderClusterID, o.Spec.ConsumerClusterID, hard.Cpu(), hard.Memory(), offerState(&o), offerMessage(&o))
	}))
}

func rank(o *sharingv1alpha1.ResourceOffer) int {
	if s := offerState(o); s == "NotApproved" || s == string(sharingv1alpha1.OfferManualActionRequired) {
		return 0
	}
	return 1
}

func offerState(o *sharingv1alpha1.ResourceOffer) string {
	switch {
	case o.Spec.WithdrawalTimestamp != nil:
		return "Withdrawn"
	case !o.Spec.Approved:
		return "NotApproved"
	case o.Status.Phase == "":
		return string(sharingv1alpha1.OfferPending)
	}
	return string(o.Status.Phase)
}

func offerMessage(o *sharingv1alpha1.ResourceOffer) string {
	if o.Spec.WithdrawalTimestamp == nil && !o.Spec.Approved {
		return fmt.Sprintf("to approve it: liqod offer approve %s -n %s", o.Name, o.Namespace)
	}
	return report.Line(o.Status.Message)
}

// offerJudge is a command about one offer.
func (c *commands) offerJudge(use, short string, judge func(context.Context, *clients, *sharingv1alpha1.ResourceOffer, io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: oneName("ResourceOffer")}
	namespace := cmd.Flags().StringP("namespace", "n", "", "`namespace` of the offer, needed where several have one of the name: "+corev1beta1.TenantNamespacePrefix+"<id of the other cluster>")
	conn := c.connection(cmd.Flags())
	cmd.ValidArgsFunction = c.completer(conn, 1, offerNames)
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, args []string) error {
		o, err := findOffer(cmd.Context(), to, *namespace, args[0])
		if err != nil {
			return explain(err)
		}
		return explain(judge(cmd.Context(), to, o, cmd.OutOrStdout()))
	}))
	return cmd
}

func offerNames(ctx context.Context, to *clients) ([]string, error) {
	list, err := to.liqo.SharingV1alpha1().ResourceOffers(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	return report.Names(list.Items, func(o *sharingv1alpha1.ResourceOffer) string { return o.Name }), err
}

// findOffer returns the only offer with a name.
func findOffer(ctx context.Context, to *clients, namespace, name string) (*sharingv1alpha1.ResourceOffer, error) {
	if namespace != "" {
		o, err := to.liqo.SharingV1alpha1().ResourceOffers(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && !noSuchKind(err) {
			return nil, fmt.Errorf("there is no ResourceOffer %s in namespace %s; see liqod offer list", name, namespace)
		}
		return o, err
	}
	found, err := store.Find[*sharingv1alpha1.ResourceOffer](ctx, "ResourceOffer", to.liqo.SharingV1alpha1().ResourceOffers(""), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(o *sharingv1alpha1.ResourceOffer) bool { return o.Name != name })
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("there is no ResourceOffer %s; see liqod offer list", name)
	case 1:
		return found[0], nil
	}
	return nil, Usagef("%d namespaces have a ResourceOffer %s: say which one is meant with -n", len(found), name)
}

// received reports whether an offer is the copy of a peer's.
func received(o *sharingv1alpha1.ResourceOffer) bool {
	return o.Labels[offloadingv1beta1.ReplicatedLabel] == "true"
}

func approve(ctx context.Context, to *clients, o *sharingv1alpha1.ResourceOffer, out io.Writer) error {
	done, already := fmt.Sprintf("the offer %s to cluster %s is approved", o.Name, o.Spec.ConsumerClusterID), o.Spec.Approved
	patch := store.Patch{"spec": store.Patch{"approved": true}}
	if received(o) {
		done = fmt.Sprintf("the offer %s of cluster %s is accepted", o.Name, o.Spec.ProviderClusterID)
		already = o.Annotations[sharingv1alpha1.AcceptedAnnotation] == "true"
		patch = store.Patch{"metadata": store.Patch{"annotations": map[string]string{sharingv1alpha1.AcceptedAnnotation: "true"}}}
	}
	if already {
		return say(out, "%s already", done)
	}
	return changeOffer(ctx, to, o, patch, out, done)
}

func disapprove(ctx context.Context, to *clients, o *sharingv1alpha1.ResourceOffer, out io.Writer) error {
	if received(o) {
		return fmt.Errorf("the offer %s is one of cluster %s: to stop using that, set outgoingPeeringEnabled: No in its ForeignCluster", o.Name, o.Spec.ProviderClusterID)
	}
	if !o.Spec.Approved {
		return say(out, "the offer %s to cluster %s is not approved", o.Name, o.Spec.ConsumerClusterID)
	}
	var config struct{ Sharing struct{ Mode string } } // its keys match in any case
	if _, err := join.Configuration(ctx, to.kube, &config); err != nil {
		return err
	}
	if config.Sharing.Mode != sharedByPeople {
		return fmt.Errorf("sharing.mode is not Manual: the controller approves it again at once; set incomingPeeringEnabled: No in the ForeignCluster of %s to end it", o.Spec.ConsumerClusterID)
	}
	return changeOffer(ctx, to, o, store.Patch{"spec": store.Patch{"approved": false}}, out, fmt.Sprintf("the approval of the offer %s to cluster %s is taken back", o.Name, o.Spec.ConsumerClusterID))
}

// sharedByPeople is the value of sharing.mode with which people approve each offer.
const sharedByPeople = "Manual"

// changeOffer patches an offer, and prints that it is done.
func changeOffer(ctx context.Context, to *clients, o *sharingv1alpha1.ResourceOffer, patch store.Patch, out io.Writer, done string) error {
	if _, err := store.Merge(ctx, "ResourceOffer", to.liqo.SharingV1alpha1().ResourceOffers(o.Namespace), "", o, patch); err != nil {
		return err
	}
	return say(out, "%s", done)
}
