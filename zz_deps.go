package main

import (
	_ "github.com/go-logr/zapr"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/viper"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/zap"
	_ "go.uber.org/zap/zaptest"
	_ "golang.org/x/sync/errgroup"
	_ "k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	_ "k8s.io/apiserver/pkg/authorization/authorizerfactory"
	_ "k8s.io/apiserver/pkg/server/dynamiccertificates"
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/client-go/tools/portforward"
	_ "k8s.io/client-go/tools/remotecommand"
	_ "k8s.io/client-go/util/certificate"
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	_ "sigs.k8s.io/yaml"
)

