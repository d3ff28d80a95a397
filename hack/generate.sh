#!/usr/bin/env bash
# Generates what is made from the API types: deep copies, the typed clients under
# api/generated, and the CRD templates of the chart; and from the comments of the chart's
# values: the descriptions of their schema, and docs/values.md; and from the chart's manifests:
# docs/rights.md; and from reasons/reasons.yaml: constants and
# docs/reasons.md; and from the results of tests: tables of docs/platforms.md and docs/install.md. `make verify` fails when the result differs from what is checked in.
set -euo pipefail
cd "$(dirname "$0")/.."

module=github.com/liqod/liqod
groups=(core/v1beta1 ipam/v1alpha1 networking/v1beta1 offloading/v1beta1 sharing/v1alpha1)
header=hack/boilerplate.go.txt
bin=$(pwd)/bin/tools
mkdir -p "$bin"
GOBIN=$bin go -C hack/tools install \
  k8s.io/code-generator/cmd/{deepcopy-gen,client-gen,lister-gen,informer-gen} \
  sigs.k8s.io/controller-tools/cmd/controller-gen

packages=()
for g in "${groups[@]}"; do packages+=("$module/api/$g"); done

"$bin/deepcopy-gen" --go-header-file $header --output-file zz_generated.deepcopy.go "${packages[@]}"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
generated=$module/api/generated
"$bin/client-gen" --go-header-file $header --clientset-name versioned --input-base $module/api \
  $(printf -- '--input %s ' "${groups[@]}") \
  --output-dir "$out/clientset" --output-pkg $generated/clientset
"$bin/lister-gen" --go-header-file $header --output-dir "$out/listers" --output-pkg $generated/listers "${packages[@]}"
"$bin/informer-gen" --go-header-file $header \
  --versioned-clientset-package $generated/clientset/versioned --listers-package $generated/listers \
  --output-dir "$out/informers" --output-pkg $generated/informers "${packages[@]}"
rm -rf api/generated
mkdir -p api/generated
cp -r "$out"/clientset "$out"/listers "$out"/informers api/generated/

# Helm never upgrades a chart's crds/ folder, so CRDs are templates, kept on uninstall.
crds=charts/liqod/templates/crds
mkdir -p $crds
rm -f $crds/*.yaml
for g in "${groups[@]}"; do
  "$bin/controller-gen" crd:maxDescLen=512 paths="./api/$g" output:crd:dir=$crds
done
for f in $crds/*.yaml; do
  # Helm reads braces; the schema holds none. The annotation keeps users' objects.
  sed -i '1{/^---$/d}; s/^  annotations:$/  annotations:\n    helm.sh\/resource-policy: keep/' "$f"
done

go run ./hack values
go run ./hack/reasons
go run ./hack runs

go build -C e2e/tools/helm -o "$bin/helmrender" .
"$bin/helmrender" --name liqod --namespace liqod --set discovery.config.clusterID=rome charts/liqod | go run ./hack rights
