package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestValuesAreDescribed: the schema of the chart's values has the comments of values.yaml, and
// docs/values.md is made of them.
func TestValuesAreDescribed(t *testing.T) {
	t.Parallel()
	schema, page, err := describeValues("..")
	require.NoError(t, err)
	for path, want := range map[string][]byte{schemaPath: schema, valuesDocPath: page} {
		have := must(os.ReadFile(filepath.Join("..", path)))
		require.Equal(t, string(want), string(have), "%s is out of date: go run ./hack values", path)
	}
}

func TestDescribeValues(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "properties": {
		"image": {"type": "object", "properties": {"tag": {"type": "string", "pattern": "^\\d<&>\"$"}, "old": {"description": "Earlier.", "type": "null"}}},
		"list": {"$ref": "#/definitions/strings"}}, "definitions": {"strings": {"type": "array", "minItems": 0, "items": {"enum": ["a", true]}}}}`
	for name, tc := range map[string]struct{ values, schema, says string }{
		"well": {"# First.\n\n# The image\n# of all.\nimage:\n  tag: \"\" # a tag\nlist: [a] # some\n", schema, ""},
		"a value without a comment": {"# The image.\nimage:\n  tag: x\nlist: [] # some\n", schema,
			"image.tag has no comment in charts/liqod/values.yaml, and no description in charts/liqod/values.schema.json"},
		"a value without a schema":             {"# The image.\nimage:\n  tag: x # a tag\n  new: 1 # new\nlist: [] # some\n", schema, "has no image.new"},
		"an earlier name without explanation":  {"# The image.\nimage:\n  tag: x # a tag\nlist: [] # some\n", strings.Replace(schema, `"description": "Earlier.", `, "", 1), "image.old has no comment"},
		"a definition without an explanation":  {"# The image.\nimage:\n  tag: x # a tag\nlist: [] # some\n", strings.Replace(schema, `"definitions": {`, `"definitions": {"x": {"properties": {"y": {}}},`, 1), "definitions.x.y has no description"},
		"values that are no object":            {"- x\n", schema, "values.yaml is not an object"},
		"a schema that is neither JSON nor so": {"list: [] # some\n", "{", "parsing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "charts/liqod"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, "docs"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, valuesPath), []byte(tc.values), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(root, schemaPath), []byte(tc.schema), 0o600))
			err := writeDescriptions(root)
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			have := must(os.ReadFile(filepath.Join(root, schemaPath)))
			require.Equal(t, `{
  "type": "object",
  "properties": {
    "image": {
      "description": "The image of all.",
      "type": "object",
      "properties": {
        "tag": {"description": "a tag", "type": "string", "pattern": "^\\d<&>\"$"},
        "old": {"description": "Earlier.", "type": "null"}
      }
    },
    "list": {"description": "some", "$ref": "#/definitions/strings"}
  },
  "definitions": {
    "strings": {"type": "array", "minItems": 0, "items": {"enum": ["a", true]}}
  }
}
`, string(have))
			page := must(os.ReadFile(filepath.Join(root, valuesDocPath)))
			require.Equal(t, valuesHead+"\n## `image`\n\nThe image of all.\n\n- `image.tag` (`\"\"`): a tag\n\n## `list`\n\nSome\n", string(page))
			require.NoError(t, writeDescriptions(root))
			again := must(os.ReadFile(filepath.Join(root, schemaPath)))
			require.Equal(t, string(have), string(again), "a second run changes nothing")
		})
	}
}
