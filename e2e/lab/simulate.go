package lab

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What a simulated pod does is said in its annotations.
const (
	// SimExitCode ends the containers of a pod: an exit code, or one for each run
	// with commas between, the last one for all that follow. Without it they run for ever.
	SimExitCode = "sim/exit-code"
	// SimRunFor is how long the containers run before they end, in milliseconds.
	SimRunFor = "sim/run-for"
	// SimStopAfter is how long the containers take to end when the pod is deleted, in
	// milliseconds; the grace period of the deletion bounds it.
	SimStopAfter = "sim/stop-after"
	// SimStopCode is the exit code of containers that were asked to stop. Default 0.
	SimStopCode = "sim/stop-code"
	// SimMissingImage begins the name of an image that cannot be pulled.
	SimMissingImage = "sim/missing"
)

const (
	simulatedLabel = "sim.liqod.io/node"
	simulatorUser  = "simulator"
)

//go:embed stages.yaml
var stages []byte

// simulatorPolicy refuses what no kubelet would do, when what the simulator knows of a pod is
// old: to remove by name the successor of a pod, and to write the status of one that has
// ended, or that has containers which it does not know of.
const simulatorPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: simulator-removes}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}]
  matchConditions: [{name: simulator, expression: request.userInfo.username == "simulator"}]
  validations: [{expression: has(oldObject.metadata.deletionTimestamp), message: only what is being deleted is removed}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: simulator-removes}
spec: {policyName: simulator-removes, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: simulator-writes}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}]
  matchConditions: [{name: simulator, expression: request.userInfo.username == "simulator"}]
  validations:
  - expression: "!(oldObject.status.phase in ['Succeeded', 'Failed']) || object.status == oldObject.status"
    message: the status of what has ended does not change
  - expression: "!has(oldObject.status.containerStatuses) ||
      has(object.status.containerStatuses) && size(object.status.containerStatuses) >= size(oldObject.status.containerStatuses)"
    message: containers that have been started are not forgotten
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: simulator-writes}
spec: {policyName: simulator-writes, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: simulator-makes-nothing}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: simulator, expression: request.userInfo.username == "simulator"}]
  validations: [{expression: "false", message: a refusal shows that all these policies are in force}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: simulator-makes-nothing}
spec: {policyName: simulator-makes-nothing, validationActions: [Deny]}
`

// AddSimulatedNodes adds n nodes that only pretend, with the names that
// SimulatedNodeName gives, and returns when they are Ready.
func (c *Cluster) AddSimulatedNodes(ctx context.Context, n int) error {
	if err := c.Apply(ctx, []byte(simulatorPolicy)); err != nil {
		return fmt.Errorf("bounding the simulator: %w", err)
	}
	if err := c.startSimulator(); err != nil {
		return err
	}
	have, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel})
	if err != nil {
		return fmt.Errorf("listing the simulated nodes: %w", err)
	}
	first := len(have.Items) + 1
	for i := first; i < first+n; i++ {
		if _, err := c.client.CoreV1().Nodes().Create(ctx, simulatedNode(c.SimulatedNodeName(i)), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a simulated node: %w", err)
		}
	}
	for i := first; i < first+n; i++ {
		if err := c.WaitNode(ctx, c.SimulatedNodeName(i), corev1.ConditionTrue); err != nil {
			return err
		}
	}
	return c.waitBounded(ctx)
}

// waitBounded returns when the last of the simulator's policies is in force: the API server
// takes them up after a while.
func (c *Cluster) waitBounded(ctx context.Context) error {
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: simulatorUser, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("a client for the simulator: %w", err)
	}
	forbidden := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "simulator-"}}
	return Eventually(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) {
			return nil
		}
		return fmt.Errorf("the simulator is not bounded yet: a creation returned %v", err)
	})
}

// SimulatedNodeName is the name of the i-th simulated node, counted from 1.
func (c *Cluster) SimulatedNodeName(i int) string { return fmt.Sprintf("%s-sim-%d", c.Name, i) }

// WaitNode returns when the Ready condition of a node has a status and, for True,
// the node has its range of pod addresses and no taint.
func (c *Cluster) WaitNode(ctx context.Context, name string, status corev1.ConditionStatus) error {
	return Eventually(ctx, That(c.client.CoreV1().Nodes(), name, func(node *corev1.Node) error {
		if status == corev1.ConditionTrue && (node.Spec.PodCIDR == "" || len(node.Spec.Taints) > 0) {
			return fmt.Errorf("node %s has range %q and taints %v", name, node.Spec.PodCIDR, node.Spec.Taints)
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == status {
				return nil
			}
		}
		return fmt.Errorf("node %s is not Ready=%s", name, status)
	}))
}

// Simulator is the process behind all simulated nodes, nil if there are none.
func (c *Cluster) Simulator() *Process {
	c.plane.mu.Lock()
	defer c.plane.mu.Unlock()
	return c.sim
}

func (c *Cluster) startSimulator() error {
	if c.Simulator() != nil {
		return nil
	}
	kubeconfig, err := c.KubeconfigForUser(simulatorUser, "system:masters")
	if err != nil {
		return err
	}
	file := c.path("stages.yaml")
	if err := writeFiles(map[string][]byte{file: stages}); err != nil {
		return err
	}
	// The lease is renewed four times in its duration.
	lease := int(c.Options.NodeGrace / time.Second * 2 / 3)
	p, err := c.lab.Process(ProcessOptions{
		Name: c.Name + "/simulator", Path: c.lab.kubelab, Dir: c.Dir, Netns: c.Options.Netns, ClockAhead: c.Options.ClockAhead,
		Args: []string{
			"kwok", "--config", file, "--kubeconfig", kubeconfig, "--manage-nodes-with-label-selector", simulatedLabel + "=alive",
			"--cidr", c.Options.PodCIDR, "--node-ip", "127.0.0.1", "--node-lease-duration-seconds", strconv.Itoa(lease),
		},
	})
	if err != nil {
		return err
	}
	c.plane.mu.Lock()
	defer c.plane.mu.Unlock()
	c.sim = p
	return nil
}

func simulatedNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"), corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			simulatedLabel: "alive", corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyZone: "sim",
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: KubernetesVersion, OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "sim://1",
			},
			// As kubelets of that version do; without them the control plane refuses pods and resizes.
			DeclaredFeatures: []string{"InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"},
		},
	}
}
