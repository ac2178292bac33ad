package broker_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/openapi"
)

// description is the API's own description, with schemas that do not allow additional members.
type description struct {
	paths   *http.ServeMux
	doc     map[string]any
	replies map[string]*jsonschema.Schema // by the endpoint's pattern and the reply's status
}

var describe = sync.OnceValues(func() (*description, error) {
	c := three()
	handler := broker.New(broker.Config{Exchange: c, Directory: c, Workers: c, View: newFakeView(c)}).Handler()
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, openapi.Path, http.NoBody))
	d := &description{paths: http.NewServeMux(), replies: map[string]*jsonschema.Schema{}}
	if err := json.Unmarshal(rec.Body.Bytes(), &d.doc); err != nil {
		return nil, err
	}
	schemas := d.doc["components"].(map[string]any)["schemas"].(map[string]any)
	open := map[string]bool{}
	within(schemas, schemas["bourse.Config"], open)
	for name, schema := range schemas {
		if name != "bourse.Config" && !open[name] {
			schema.(map[string]any)["additionalProperties"] = false
		}
	}
	return d, d.compile()
})

// within adds the names of all schemas that value refers to, directly or indirectly, to found.
func within(schemas map[string]any, value any, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		if ref, ok := value["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/components/schemas/")
			if !found[name] {
				found[name] = true
				within(schemas, schemas[name], found)
			}
		}
		for _, below := range value {
			within(schemas, below, found)
		}
	case []any:
		for _, below := range value {
			within(schemas, below, found)
		}
	}
}

// compile compiles the schemas of all JSON replies.
func (d *description) compile() error {
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", d.doc); err != nil {
		return err
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	for path, item := range d.doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			operation, ok := operation.(map[string]any)
			if !ok {
				continue // the path's common parameters
			}
			pattern := strings.ToUpper(method) + " " + path
			d.paths.Handle(pattern, http.NotFoundHandler())
			for status, reply := range operation["responses"].(map[string]any) {
				content, _ := reply.(map[string]any)["content"].(map[string]any)
				if content["application/json"] == nil {
					d.replies[pattern+" "+status] = nil
					continue
				}
				schema, err := compiler.Compile("openapi.json#/paths/" + escape.Replace(path) + "/" + method + "/responses/" + status + "/content/application~1json/schema")
				if err != nil {
					return err
				}
				d.replies[pattern+" "+status] = schema
			}
		}
	}
	return nil
}

// describedReplies fails the test if a reply of h does not match the description.
func describedReplies(t testing.TB, h http.Handler) http.Handler {
	t.Helper()
	if _, ok := t.(*testing.T); !ok {
		return h
	}
	d, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &repliesSeen{ResponseWriter: w}
		h.ServeHTTP(rec, r)
		d.check(t, r, rec)
	})
}

func (d *description) check(t testing.TB, r *http.Request, rec *repliesSeen) {
	_, pattern := d.paths.Handler(r)
	if pattern == "" || rec.status == 0 || r.Context().Err() != nil {
		return
	}
	status := strconv.Itoa(rec.status)
	schema, known := d.replies[pattern+" "+status]
	if rec.status >= 300 {
		schema, known = d.replies[pattern+" default"], true
	}
	switch {
	case !known:
		t.Errorf("%s replied with %s, which is not in its description", pattern, status)
	case schema == nil || !strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json"):
	default:
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(rec.body.Bytes()))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s replied with %s and a body that does not match its description: %v\n%.2000s", pattern, status, err, rec.body.String())
		}
	}
}

// repliesSeen records a reply as it is written.
type repliesSeen struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *repliesSeen) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *repliesSeen) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.body.Len() < 1<<20 {
		r.body.Write(b)
	}
	return r.ResponseWriter.Write(b)
}

func (r *repliesSeen) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// TestUnsupportedCallsReplyWithReason checks that the reply to an unsupported call of the Machines
// API contains the reason, even if its path matches another route.
func TestUnsupportedCallsReplyWithReason(t *testing.T) {
	t.Parallel()
	s := start(t)
	for call, want := range map[string]string{
		"GET /v1/apps/shop/machines/148e21ea1d5389/memory":          "is not supported: a running machine's memory cannot be changed",
		"POST /v1/apps/shop/machines/148e21ea1d5389/memory/reclaim": "is not supported: a running machine's memory cannot be changed",
		"POST /v1/tokens/oidc":                                      "is not supported: tokens are opaque",
		"POST /v1/postgres":                                         "is not supported: Bourse does not offer Managed Postgres",
		"POST /v1/tokens/oidc/":                                     "is not supported: tokens are opaque",
		"GET /v1/tokens/oidc/x":                                     "no such endpoint",
		"PUT /v1/postgres":                                          "no such endpoint",
	} {
		method, path, _ := strings.Cut(call, " ")
		if rec := s.call(t, method, path, ""); rec.Code != http.StatusNotFound || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", call, rec.Code, rec.Body, want)
		}
	}
}

// TestDescribedValues checks that each value listed in a parameter's description is accepted, and
// that other values are rejected.
func TestDescribedValues(t *testing.T) {
	t.Parallel()
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	var doc struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(s.call(t, "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Servers) != 1 || doc.Servers[0].URL != "/" {
		t.Errorf("servers %+v", doc.Servers)
	}
	values := map[string][]string{}
	for _, path := range []string{"/v1/apps/{app}/machines/{machine}/wait", "/v1/apps/{app}/machines/{machine}/ps"} {
		var operation struct {
			Parameters []struct {
				Name   string
				Schema struct {
					Enum  []string
					Items struct{ Enum []string }
				}
			}
		}
		if err := json.Unmarshal(doc.Paths[path]["get"], &operation); err != nil {
			t.Fatal(err)
		}
		for _, p := range operation.Parameters {
			at := strings.NewReplacer("{app}", "shop", "{machine}", string(m.ID)).Replace(path) + "?timeout=1ms&" + p.Name + "="
			if all := slices.Concat(p.Schema.Enum, p.Schema.Items.Enum); len(all) > 0 {
				values[at] = all
			}
		}
	}
	if len(values) != 3 {
		t.Errorf("values of %d parameters: %v", len(values), values)
	}
	for at, all := range values {
		for _, value := range all {
			if rec := s.call(t, "GET", at+value, ""); rec.Code == http.StatusBadRequest {
				t.Errorf("GET %s%s: %s", at, value, rec.Body)
			}
		}
		if rec := s.call(t, "GET", at+"other", ""); rec.Code != http.StatusBadRequest {
			t.Errorf("GET %sother: %d", at, rec.Code)
		}
	}
}
