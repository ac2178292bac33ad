package broker

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/openapi"
)

var update = flag.Bool("update", false, "update the generated parts of the API's documentation")

func described(t *testing.T) ([]endpoint.Route, map[string]any) {
	t.Helper()
	_, routes, _ := compose(&Config{})
	text, err := json.Marshal(openapi.Describe(routes, "test"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return routes, doc
}

// TestTheDescriptionIsValid checks that the description conforms to the OpenAPI 3.1 schema, that each schema in it is
// valid, and that operation IDs are unique.
func TestTheDescriptionIsValid(t *testing.T) {
	_, doc := described(t)
	raw, err := os.Open("openapi/testdata/openapi-3.1.json")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	meta, err := jsonschema.UnmarshalJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://spec.openapis.org/oas/3.1/schema/2022-10-07", meta); err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	if err := c.MustCompile("https://spec.openapis.org/oas/3.1/schema/2022-10-07").Validate(doc); err != nil {
		t.Error(err)
	}
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ids := map[any]string{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			if operation, ok := operation.(map[string]any); ok {
				if other := ids[operation["operationId"]]; other != "" {
					t.Errorf("%s %s and %s both have the ID %s", method, path, other, operation["operationId"])
				}
				ids[operation["operationId"]] = method + " " + path
			}
		}
	}
}

// TestEveryRouteIsDescribed checks that every route describes its reply and, if its method has a
// body, its request.
func TestEveryRouteIsDescribed(t *testing.T) {
	routes, doc := described(t)
	for _, rt := range routes {
		method, path, _ := strings.Cut(rt.Pattern, " ")
		item, _ := doc["paths"].(map[string]any)[strings.ReplaceAll(path, "...}", "}")].(map[string]any)
		operation, _ := item[strings.ToLower(method)].(map[string]any)
		if operation == nil {
			t.Errorf("%s is not in the description", rt.Pattern)
		}
		if operation["summary"] == "" {
			t.Errorf("%s has no summary: write one in openapi/summaries.go", rt.Pattern)
		}
		reads := method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
		streams := rt.About.Media == "application/octet-stream" // the route streams in both directions
		if reads && rt.About.Body == nil && !rt.About.Bodiless && !streams {
			t.Errorf("%s does not declare its request: use Reads, MayRead or ReadsNothing", rt.Pattern)
		}
		if rt.About.Bodiless && (!reads || rt.About.Body != nil || streams) {
			t.Errorf("%s declares both ReadsNothing and a request", rt.Pattern)
		}
		if method == http.MethodGet && rt.About.Reply == nil && rt.About.Media == "" && !strings.HasSuffix(path, "/{rest...}") {
			t.Errorf("%s does not declare its reply: use Writes, Streams or Sends", rt.Pattern)
		}
	}
}

// TestEveryCallOfTheMachinesAPI checks that every call of the Machines API either is served or has
// a documented reason why it is not. To update the table in the documentation, run go test -run
// TestEveryCallOfTheMachinesAPI -update ./broker.
func TestEveryCallOfTheMachinesAPI(t *testing.T) {
	const path, begin, end = "../docs/compatibility.md", "<!-- endpoints: written by go test -run TestEveryCallOfTheMachinesAPI ./broker -update -->\n", "<!-- end of endpoints -->\n"
	routes, _ := described(t)
	var want strings.Builder
	want.WriteString("| call | | |\n|---|---|---|\n")
	for _, call := range openapi.Calls() {
		served := slices.ContainsFunc(routes, func(rt endpoint.Route) bool { return openapi.Same(rt.Pattern, call.Pattern) })
		status, note := "works", call.Differs
		switch {
		case !served && call.Missing == "":
			t.Errorf("%s is not served, but has no reason", call.Pattern)
		case served && call.Missing != "":
			t.Errorf("%s is served, but has a reason why not: %s", call.Pattern, call.Missing)
		case !served:
			status, note = "not offered", call.Missing
		case note != "":
			status = "differs"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", strings.ReplaceAll(call.Pattern, "...}", "}"), status, note)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	got, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want.String()+end+after), 0o644); err != nil { //nolint:gosec // a file in the source tree
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s is out of date (-want +got); run go test -run TestEveryCallOfTheMachinesAPI ./broker -update\n%s", path, diff)
	}
}
