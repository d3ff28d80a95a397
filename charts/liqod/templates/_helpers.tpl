{{- define "liqod.labels" -}}
app.kubernetes.io/name: liqod
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "liqod.image" -}}
{{- with .Values.image.digest }}{{ $.Values.image.repository }}@{{ . }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The configuration file of the roles. Earlier names of values come first, then today's, then `config`. */ -}}
{{- define "liqod.config" -}}
{{- $v := .Values -}}
{{- $id := required "discovery.config.clusterID is needed: the name of this cluster among its peers, a DNS label of at most 51 characters" $v.discovery.config.clusterID -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,49}[a-z0-9])?$" $id) }}{{ fail (printf "discovery.config.clusterID %q: a DNS label of at most 51 characters is accepted" $id) }}{{ end -}}
{{- include "liqod.misplaced" (dict "given" $v.config) -}}
{{- if and $v.networking.enabled (not $v.networking.externalCIDRs) }}{{ fail "networking.externalCIDRs is needed with networking.enabled: a range that is free in this cluster, as 10.70.0.0/16" }}{{ end -}}
{{- $skip := $v.offloading.reflection.skip -}}
{{- $earlier := dict -}}
{{- with get $v "reflection" }}{{ $earlier = .skip | default dict }}{{ end -}}
{{- $reflection := dict
  "skipLabels" (concat $skip.labels (get $earlier "labels" | default list) | uniq)
  "skipAnnotations" (concat $skip.annotations (get $earlier "annotations" | default list) | uniq) -}}
{{- range $resource, $setting := mergeOverwrite (deepCopy (omit $v.offloading.reflection "skip")) (deepCopy (omit (get $v "reflection" | default dict) "skip")) -}}
{{- if and (hasKey $setting "type") (has $resource (list "pod" "endpointslice" "serviceaccount" "persistentvolumeclaim")) }}{{ fail (printf "offloading.reflection.%s.type is not accepted: %s" $resource (eq $resource "endpointslice" | ternary "EndpointSlices follow the policy of their Service; set offloading.reflection.service.type" "it follows the pods, not a policy; leave it out")) }}{{ end -}}
{{- $_ := set $reflection $resource $setting -}}
{{- end -}}
{{- $vk := $v.virtualKubelet -}}
{{- $vkubelet := dict
  "image" ($vk.image | default (include "liqod.image" .))
  "imagePullPolicy" $v.image.pullPolicy
  "imagePullSecrets" $v.image.pullSecrets
  "replicas" (int $vk.replicas)
  "extraArgs" $vk.extra.args
  "nodeAddress" $vk.nodeAddress
  "priorityClassName" $v.common.priorityClassName
  "nodeSelector" $vk.nodeSelector
  "tolerations" $vk.tolerations
  "spread" $v.common.spread
  "resources" $vk.resources -}}
{{- $controller := dict
  "podSecurityLevel" $v.controllerManager.config.podSecurityLevel
  "runtimeClasses" $v.controllerManager.config.runtimeClasses
  "alwaysPullImages" $v.controllerManager.config.alwaysPullImages
  "drainTimeout" $v.controllerManager.config.drainTimeout
  "drainForceAfter" $v.controllerManager.config.drainForceAfter
  "enableNodeFailureController" $v.controllerManager.config.enableNodeFailureController
  "vkubelet" $vkubelet -}}
{{- /* Their defaults follow the trust in peers. */ -}}
{{- range list "twinNames" "volumeTypes" "tolerations" }}{{ $given := get $v.controllerManager.config . }}{{ if kindIs "slice" $given }}{{ $_ := set $controller . $given }}{{ end }}{{ end -}}
{{- $networking := pick $v.networking "enabled" "podCIDRs" "serviceCIDRs" "externalCIDRs" "nodeCIDRs" "reservedSubnets" -}}
{{- $ipam := omit $v.ipam "internal" "keep" }}{{ if kindIs "slice" $v.ipam.keep }}{{ $_ := set $ipam "keep" $v.ipam.keep }}{{ end -}}
{{- with $v.networking.reach }}{{ $_ := set $networking "reach" . }}{{ end -}}
{{- $a := $v.authentication -}}
{{- $config := dict
  "clusterID" $id
  "namespace" .Release.Namespace
  "reflection" $reflection
  "controller" $controller
  "storage" (dict "realStorageClassName" $v.storage.realStorageClassName "storageNamespace" ($v.storage.enabled | ternary $v.storage.storageNamespace ""))
  "vkubelet" (pick $vk "nodeTaint")
  "networking" $networking
  "ipam" $ipam
  "authentication" (dict "address" ($a.enabled | ternary (printf ":%d" (int $a.port)) "") "url" $a.url "apiServerURL" $a.apiServerURL "identity" $a.identity)
  "webhook" (dict "address" (printf ":%d" (int $v.webhook.port)) "drain" "5s") -}}
{{- mergeOverwrite $config (deepCopy $v.config) | toYaml -}}
{{- end }}

{{- /* Annotations of what helm uninstall makes before anything is deleted. Takes the weight. */ -}}
{{- define "liqod.uninstall" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* The number of gateways: by the earlier name of the value, or today's. */ -}}
{{- define "liqod.gateways" -}}
{{- get (get .Values "gateway" | default dict) "replicas" | default .Values.networking.gatewayTemplates.replicas | int -}}
{{- end }}

{{- /* Fails if networking.gatewayTemplates.outside, or a value beside it, is not accepted. */ -}}
{{- define "liqod.outside" -}}
{{- $g := .Values.networking.gatewayTemplates -}}
{{- $replicas := include "liqod.gateways" . | int -}}
{{- $value := "networking.gatewayTemplates" -}}
{{- if and $g.outside (not .Values.networking.enabled) }}{{ fail (printf "%s.outside is not accepted: it needs networking.enabled" $value) }}{{ end -}}
{{- if not (or $replicas $g.outside) }}{{ fail (printf "%s.replicas: 0 is not accepted: %s.outside names no gateway, and without one no peer is reached" $value $value) }}{{ end -}}
{{- $names := list -}}
{{- $numbers := list -}}
{{- range $g.outside -}}
{{- if le (int .number) $replicas }}{{ fail (printf "%s.outside: number %d of %s is not accepted: the gateways of replicas have the numbers 1 to %d" $value (int .number) .name $replicas) }}{{ end -}}
{{- if or (has .name $names) (has (int .number) $numbers) }}{{ fail (printf "%s.outside: name %s with number %d is not accepted: another one has the name or the number" $value .name (int .number)) }}{{ end -}}
{{- $names = append $names .name -}}
{{- $numbers = append $numbers (int .number) -}}
{{- end -}}
{{- if not $replicas -}}
{{- $usual := dict "endpoints" list "podAddresses" false "mtu" 0 "extraArgs" list
  "service" (dict "type" "LoadBalancer" "port" 51840 "nodePort" 0 "loadBalancerIP" "" "loadBalancerSourceRanges" list "externalTrafficPolicy" "Local" "labels" dict "annotations" dict) -}}
{{- range $key, $default := $usual -}}
{{- if ne (get $g $key | toJson) (toJson $default) }}{{ fail (printf "%s.%s is not accepted: without a gateway in the cluster (replicas: 0) it does nothing. Leave it out: the settings of a gateway outside are on its host" $value $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Checksum of the configuration without the sections that a role does not read: a change of
these starts none of its pods again. Sections that are not listed count for every role. Takes a dict: root, role. */ -}}
{{- define "liqod.checksum" -}}
{{- $foreign := dict
  "controller" (list "ipam" "gateway" "route")
  "webhook" (list "probe" "reflection" "discovery" "peering" "controller" "vkubelet" "authentication" "networking" "ipam" "gateway" "route")
  "ipam" (list "probe" "reflection" "discovery" "peering" "sharing" "controller" "vkubelet" "webhook" "authentication" "gateway" "route" "storage")
  "gateway" (list "reflection" "discovery" "peering" "sharing" "controller" "vkubelet" "webhook" "authentication" "ipam" "route" "storage")
  "route" (list "probe" "reflection" "discovery" "peering" "sharing" "controller" "vkubelet" "webhook" "authentication" "networking" "ipam" "gateway" "storage") -}}
{{- $all := include "liqod.config" .root | fromYaml -}}
{{- $config := $all -}}
{{- range get $foreign .role }}{{ $config = omit $config . }}{{ end -}}
{{- /* Of the webhook's settings, the controller reads the names in its certificate. */ -}}
{{- if eq .role "controller" }}{{ $_ := set $config "webhook" (pick $config.webhook "hosts") }}{{ end -}}
{{- if eq .role "route" }}{{ $_ := set $config "reach" (list (dig "networking" "reach" "" $all) (dig "sharing" "trust" "" $all)) }}{{ end -}}
{{- if eq .role "ipam" }}{{ $_ := set $config "trust" (dig "sharing" "trust" "" $all) }}{{ end -}}
{{- toYaml $config | sha256sum -}}
{{- end }}

{{- /* Settings that the rest of the chart depends on: each has a place of its own. */ -}}
{{- define "liqod.misplaced" -}}
{{- $given := .given -}}
{{- $places := dict
  "clusterID" "use discovery.config.clusterID"
  "namespace" "it is the release's namespace (helm --namespace)"
  "kubeconfig" "leave it out: the roles use their service accounts"
  "server.address" "leave it out: the probes of the pods ask port 8080"
  "storage" "use storage"
  "reflection.skipLabels" "use offloading.reflection.skip.labels"
  "reflection.skipAnnotations" "use offloading.reflection.skip.annotations"
  "reflection.pod" "use offloading.reflection.pod"
  "reflection.service" "use offloading.reflection.service"
  "reflection.endpointslice" "use offloading.reflection.endpointslice"
  "reflection.ingress" "use offloading.reflection.ingress"
  "reflection.configmap" "use offloading.reflection.configmap"
  "reflection.secret" "use offloading.reflection.secret"
  "reflection.serviceaccount" "use offloading.reflection.serviceaccount"
  "reflection.persistentvolumeclaim" "use offloading.reflection.persistentvolumeclaim"
  "reflection.event" "use offloading.reflection.event"
  "vkubelet.virtualNode" "leave it out: each vkubelet is told its own"
  "vkubelet.nodeAddress" "use virtualKubelet.nodeAddress, or spec.virtualKubelet.nodeAddress of a VirtualNode"
  "webhook.address" "use webhook.port"
  "networking" "use networking"
  "ipam" "use ipam"
  "gateway.keySecret" "leave it out: the rights of the chart are for Secret liqod-gateway-key"
  "gateway.number" "leave it out: the chart's gateways have the numbers from 1"
  "gateway.replicas" "use networking.gatewayTemplates.replicas"
  "gateway.stateDir" "leave it out: the key is in Secret liqod-gateway-key"
  "gateway.tunnelPort" "use networking.gatewayTemplates.service.port, to which the Service leads from outside"
  "gateway.addresses" "leave it out: they are those of the gateway's pod"
  "gateway.endpoints" "use networking.gatewayTemplates.endpoints"
  "gateway.service" "leave it out: it is the chart's Service liqod-gateway"
  "gateway.nodeName" "leave it out: the gateway's pod is told its own"
  "gateway.podAddresses" "use networking.gatewayTemplates.podAddresses"
  "gateway.mtu" "use networking.gatewayTemplates.mtu"
  "route.nodeName" "leave it out: each pod is told its own"
  "route.mtu" "use networking.route.mtu"
  "authentication.address" "use authentication.enabled and authentication.port"
  "authentication.url" "use authentication.url"
  "authentication.apiServerURL" "use authentication.apiServerURL"
  "authentication.identity" "use authentication.identity" -}}
{{- range $key, $place := $places -}}
{{- $path := splitList "." $key -}}
{{- $section := $given -}}
{{- range initial $path }}{{ $section = get $section . | default dict }}{{ end -}}
{{- if and (kindIs "map" $section) (hasKey $section (last $path)) }}{{ fail (printf "config.%s is not accepted: %s" $key $place) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* What pods of the network fabric have in common: neither runs on a virtual node. */ -}}
{{- define "liqod.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.common.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: liqo.io/type, operator: NotIn, values: [virtual-node]}
{{- end }}

{{- /* A pod on a node that does not answer is replaced 5 s after Kubernetes' verdict, and not after its usual 300 s. Role
route is not: it runs on every node. */ -}}
{{- define "liqod.tolerations" -}}
tolerations:
  {{- range list "unreachable" "not-ready" }}
  - {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
  {{- end }}
  {{- with .Values.common.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Where replicas of a role run: on different nodes, zones and the like, if possible. Replicas of another revision do
not count: else a rolling update may end with both replicas on one node. Takes a dict: root, role. */ -}}
{{- define "liqod.spread" -}}
{{- with .root.Values.common.spread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app.kubernetes.io/name: liqod
        app.kubernetes.io/instance: {{ $.root.Release.Name }}
        app.kubernetes.io/component: {{ $.role }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}

{{- /* Fails if the cluster lacks a kind of the Prometheus operator. Without a cluster, as for `helm template`,
it is not known which kinds there are. Takes a dict: root, kind, value. */ -}}
{{- define "liqod.monitoring.needs" -}}
{{- $has := .root.Capabilities.APIVersions -}}
{{- if and ($has.Has "apps/v1/Deployment") (not ($has.Has (printf "monitoring.coreos.com/v1/%s" .kind))) }}{{ fail (printf "%s is not accepted: this cluster has no kind %s of monitoring.coreos.com/v1. Install the Prometheus operator first, or set %s to false" .value .kind .value) }}{{ end -}}
{{- end }}

{{- /* The PodDisruptionBudget of a role with several replicas: a drain of nodes stops one at a time.
Takes a dict: root, role. */ -}}
{{- define "liqod.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: liqod-{{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "liqod.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow # a replica that is not ready serves nobody and need not stay
  selector:
    matchLabels:
      app.kubernetes.io/name: liqod
      app.kubernetes.io/instance: {{ .root.Release.Name }}
      app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- /* A Deployment of one role. Takes a dict: root, role, replicas, resources, args, ports; priority may be missing, and host: the
port for health of pods in the network of their nodes. */ -}}
{{- define "liqod.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: liqod-{{ .role }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "liqod.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels:
      app.kubernetes.io/name: liqod
      app.kubernetes.io/instance: {{ $root.Release.Name }}
      app.kubernetes.io/component: {{ .role }}
  strategy:
    type: RollingUpdate
    {{- if .host }}
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1} # a node has room for one pod with its ports
    {{- else }}
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "liqod.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
        {{- with $root.Values.common.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ include "liqod.checksum" (dict "root" $root "role" .role) }}
        {{- with $root.Values.common.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: liqod-{{ .role }}
      {{- if .host }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      # Services whose names begin with liqod would become LIQOD_* variables.
      enableServiceLinks: false
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      {{- with .priority | default $root.Values.common.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.common.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "liqod.tolerations" $root | nindent 6 }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: liqo.io/type, operator: NotIn, values: [virtual-node]}
      {{- include "liqod.spread" . | nindent 6 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      terminationGracePeriodSeconds: 40
      containers:
        - name: {{ .role }}
          image: {{ include "liqod.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - --role={{ .role }}
            - --config=/etc/liqod/config.yaml
            {{- with .host }}
            - --server.address=:{{ . }}
            {{- end }}
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          ports:
            - {name: health, containerPort: {{ .host | default 8080 }}, protocol: TCP}
            {{- range .ports }}
            - {name: {{ .name }}, containerPort: {{ .port }}, protocol: TCP}
            {{- end }}
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 2
            failureThreshold: 8
            timeoutSeconds: 5
          {{- with .resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: config, mountPath: /etc/liqod, readOnly: true}
      volumes:
        - name: config
          configMap: {name: liqod}
{{- if gt (int .replicas) 1 }}
---
{{ include "liqod.budget" . }}
{{- end }}
{{- end }}

{{- /* CEL of the policy for peers, about object or oldObject, either of which may be null: */}}

{{- /* It bears no finalizers and no owner references. */}}
{{- define "liqod.peer.unbound" -}}
({{ . }} == null || (!has({{ . }}.metadata.finalizers) && !has({{ . }}.metadata.ownerReferences)))
{{- end }}

{{- /* Who writes it has reflected it, and it bears neither of them. */}}
{{- define "liqod.peer.reflected" -}}
({{ . }} == null || (!has({{ . }}.metadata.finalizers) && !has({{ . }}.metadata.ownerReferences) &&
has({{ . }}.metadata.labels) && 'offloading.liqo.io/origin' in {{ . }}.metadata.labels &&
(request.userInfo.username.startsWith('liqo.io:peer:' + {{ . }}.metadata.labels['offloading.liqo.io/origin'] + ':') ||
request.userInfo.username.startsWith('system:serviceaccount:liqo-tenant-' + {{ . }}.metadata.labels['offloading.liqo.io/origin'] + ':'))))
{{- end }}

{{- /* What peers have rights to create or change, as rules of a policy. */}}
{{- define "liqod.peer.written" -}}
- apiGroups: [offloading.liqo.io, sharing.liqo.io, networking.liqo.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: ["*/*"]
  scope: Namespaced
- apiGroups: [""]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [configmaps, secrets, services, persistentvolumeclaims]
- apiGroups: [networking.k8s.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [ingresses]
- apiGroups: [coordination.k8s.io]
  apiVersions: ["*"]
  operations: [UPDATE]
  resources: [leases]
  resourceNames: [liqod-heartbeat]
{{- end }}

{{- /* What is made for the object is to outlive it. About a request. */}}
{{- define "liqod.peer.orphans" -}}
request.operation == 'DELETE' && has(request.options) && ((has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan') || (has(request.options.orphanDependents) && request.options.orphanDependents == true))
{{- end }}

{{- /* It is no Secret that this cluster would fill with an identity. */}}
{{- define "liqod.peer.noTokenSecret" -}}
({{ . }} == null || !has({{ . }}.type) || {{ . }}.type != 'kubernetes.io/service-account-token')
{{- end }}

{{- /* It is no Service with addresses of the peer's choice. */}}
{{- define "liqod.peer.noExternalIPs" -}}
({{ . }} == null || !has({{ . }}.spec.externalIPs))
{{- end }}

{{- /* A list of sharing, as JSON: the given one, or the default of config.yaml, which is that for Strict peers: with any setting of
sharing.trust a peer may be one (spec.trust of its ForeignCluster), and the webhook knows. Takes a dict: root, sort. */}}
{{- define "liqod.sharing.list" -}}
{{- $given := get .root.Values.config "sharing" | default dict -}}
{{- $usual := dict
  "storageClasses" (list "*")
  "ingressClasses" (list "*")
  "loadBalancerClasses" list
  "serviceTypes" (list "ClusterIP" "NodePort" "LoadBalancer")
  "annotations" (list "kubectl.kubernetes.io/*" "helm.sh/*" "meta.helm.sh/*" "batch.kubernetes.io/*" "container.apparmor.security.beta.kubernetes.io/*" "controller.kubernetes.io/pod-deletion-cost" "endpoints.kubernetes.io/last-change-trigger-time" "kubernetes.io/description" "kubernetes.io/egress-bandwidth" "kubernetes.io/ingress-bandwidth" "kubernetes.io/ingress.class" "kubernetes.io/limit-ranger" "service.kubernetes.io/topology-mode" "nginx.ingress.kubernetes.io/backend-protocol" "nginx.ingress.kubernetes.io/force-ssl-redirect" "nginx.ingress.kubernetes.io/proxy-body-size" "nginx.ingress.kubernetes.io/proxy-connect-timeout" "nginx.ingress.kubernetes.io/proxy-read-timeout" "nginx.ingress.kubernetes.io/proxy-send-timeout" "nginx.ingress.kubernetes.io/rewrite-target" "nginx.ingress.kubernetes.io/ssl-redirect" "nginx.ingress.kubernetes.io/use-regex")
  "labelsLeftOut" (list "v1.cni.cncf.io/*" "v1.multus-cni.io/*" "cni.projectcalico.org/*" "cilium.io/*" "ovn.kubernetes.io/*" "ovn.org/*" "cluster-autoscaler.kubernetes.io/*" "karpenter.sh/*" "descheduler.alpha.kubernetes.io/*" "istio.io/*" "linkerd.io/*" "kuma.io/*" "consul.hashicorp.com/*" "vault.hashicorp.com/*" "azure.workload.identity/*" "eks.amazonaws.com/*" "cloud.google.com/*" "topology.gke.io/*" "topology.ebs.csi.aws.com/*" "topology.disk.csi.azure.com/*" "config.openshift.io/*" "kyverno.io/*" "admission.datadoghq.com/*" "spiffe.io/*" "sidecar.jaegertracing.io/*" "kueue.x-k8s.io/*" "jenkins.io/*" "aadpodidbinding" "spire-workload" "grafana_dashboard" "grafana_datasource" "grafana_alert" "grafana_notifier" "grafana_plugin" "k8s-sidecar-target-directory") -}}
{{- hasKey $given .sort | ternary (get $given .sort) (get $usual .sort) | default list | toJson -}}
{{- end }}

{{- /* CEL: a label or an annotation of object that peers perhaps may not set, and that an update changes; the webhook judges exactly. */}}
{{- define "liqod.peer.oddMetadata" -}}
{{- $allowed := include "liqod.sharing.list" (dict "root" . "sort" "annotations") | fromJsonArray -}}
{{- $tracks := "(argocd[.]argoproj|(kustomize|helm)[.]toolkit[.]fluxcd)[.]io/.*" -}}
{{- $labels := list $tracks -}}
{{- $plain := list -}}
{{- range include "liqod.sharing.list" (dict "root" . "sort" "labelsLeftOut") | fromJsonArray -}}
{{- $labels = append $labels (hasSuffix "/*" . | ternary (printf "([^/]*[.])?%s/.*" (trimSuffix "/*" . | replace "." "[.]")) (replace "." "[.]" .)) -}}
{{- if not (contains "." .) }}{{ $plain = append $plain . }}{{ end -}}
{{- end -}}
(has(object.metadata.annotations) && (oldObject == null || !has(oldObject.metadata.annotations) || oldObject.metadata.annotations != object.metadata.annotations) &&
object.metadata.annotations.exists(k, k.matches('^{{ $tracks }}$') ||{{ with $plain }} k in {{ toJson . | replace "\"" "'" }} ||{{ end }} {{ if has "*" $allowed }}k.startsWith('kubernetes.io/config.') || k == 'volume.kubernetes.io/selected-node'{{ else -}}
k.contains('ingress.kubernetes.io/') || (k.contains('.') && !k.startsWith('offloading.liqo.io/') && !k.startsWith('liqo.io/') && !(k in {{ $allowed | toJson | replace "\"" "'" }})
{{- range $allowed }}{{ if hasSuffix "/*" . }} && !k.startsWith('{{ trimSuffix "*" . }}'){{ end }}{{ end }}){{ end }}))
{{- " ||" }}
(has(object.metadata.labels) && (oldObject == null || !has(oldObject.metadata.labels) || oldObject.metadata.labels != object.metadata.labels) &&
object.metadata.labels.exists(k, k.matches('^({{ join "|" $labels }})$')))
{{- end }}

{{- /* Whether peers may use a class: "true" and "false" where that is known. Takes a dict: root, sort, class. */}}
{{- define "liqod.peer.offered" -}}
{{- $classes := include "liqod.sharing.list" . | fromJsonArray -}}
{{- if has "*" $classes }}true{{ else if $classes }}{{ .class }} in {{ toJson $classes }}{{ else }}false{{ end -}}
{{- end }}

{{- /* What a peer is told that has asked for another class. Takes a dict: root, sort, what. */}}
{{- define "liqod.peer.others" -}}
a peer may use only the {{ .what }} classes that this cluster shares (sharing.{{ .sort }}): {{ include "liqod.sharing.list" . | fromJsonArray | join ", " | default "none" }}
{{- end }}
