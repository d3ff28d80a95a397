package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// groups are the API paths of the resources that the demo shows.
var groups = map[string]string{
	"nodes": "/api/v1", "pods": "/api/v1", "deployments": "/apis/apps/v1",
	"virtualnodes": "/apis/offloading.liqo.io/v1beta1", "namespaceoffloadings": "/apis/offloading.liqo.io/v1beta1",
	"foreignclusters": "/apis/core.liqo.io/v1beta1", "connections": "/apis/networking.liqo.io/v1beta1",
}

// get is a `kubectl get`.
type get struct {
	namespace, resource string
	wide                bool
}

func (g get) line(cluster string) string {
	words := []string{"kubectl", "--context", cluster}
	if g.namespace != "" {
		words = append(words, "-n", g.namespace)
	}
	words = append(words, "get", g.resource)
	if g.wide {
		words = append(words, "-o", "wide")
	}
	return strings.Join(words, " ")
}

func (g get) path() string {
	if g.namespace == "" {
		return path.Join(groups[g.resource], g.resource)
	}
	return path.Join(groups[g.resource], "namespaces", g.namespace, g.resource)
}

// show prints the line and what kubectl would print. kubectl itself may not be there:
// its tables come from the API server.
func (d *demo) show(ctx context.Context, s *site.Site, g get) error {
	d.console.command(g.line(s.Name))
	var data []byte
	err := lab.Eventually(ctx, func(ctx context.Context) (err error) {
		data, err = s.Client().Discovery().RESTClient().Get().AbsPath(g.path()).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing %s in %s: %w", g.resource, s.Name, err)
	}
	var t metav1.Table
	if err := json.Unmarshal(data, &t); err != nil {
		return fmt.Errorf("reading the table of %s: %w", g.resource, err)
	}
	d.console.table(cells(t, g.wide))
	return nil
}

// cells are the rows of a table with its header; columns without any content are left
// out, so that a wide table fits.
func cells(t metav1.Table, wide bool) [][]string {
	rows := make([][]string, len(t.Rows)+1)
	for i, column := range t.ColumnDefinitions {
		if column.Priority > 0 && !wide {
			continue
		}
		values := make([]string, len(t.Rows))
		for r, row := range t.Rows {
			values[r] = text(row.Cells, i)
		}
		empty := func(v string) bool { return v == "<none>" || v == "" }
		if !slices.ContainsFunc(values, func(v string) bool { return !empty(v) }) {
			continue
		}
		rows[0] = append(rows[0], strings.ToUpper(column.Name))
		for r, v := range values {
			rows[r+1] = append(rows[r+1], v)
		}
	}
	return rows
}

// text is a cell as kubectl prints it.
func text(row []any, i int) string {
	if i >= len(row) || row[i] == nil {
		return "<none>"
	}
	return fmt.Sprint(row[i])
}
