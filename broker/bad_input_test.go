package broker_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// goodBodies contains valid bodies, keyed by a suffix of the endpoint's pattern. TestBadInput replaces each member of
// such a body with invalid values, one at a time. For an endpoint without an entry, it sends each member alone. This is
// sufficient, because the broker reports an invalid value before a missing member.
var goodBodies = map[string]string{
	"POST /v1/apps":                     `{"name":"other","org_slug":"personal"}`,
	"POST /machines":                    `{"config":{"image":"host","init":{"exec":["true"]}}}`,
	"POST /machines/{machine}":          `{"config":{"image":"host","init":{"exec":["true"]}}}`,
	"POST /quotes":                      `{"config":{"image":"host","init":{"exec":["true"]}}}`,
	"POST /exec":                        `{"command":["true"]}`,
	"POST /lease":                       `{"ttl":5}`,
	"POST /stop":                        `{"timeout":"5s"}`,
	"POST /signal":                      `{"signal":"SIGTERM"}`,
	"POST /metadata/{key}":              `{"value":"a"}`,
	"PUT /metadata":                     `{"metadata":{"a":"b"}}`,
	"PATCH /metadata":                   `{"metadata":{"a":"b"}}`,
	"POST /volumes":                     `{"name":"data","region":"gru","size_gb":1}`,
	"PUT /volumes/{volume}":             `{"snapshot_retention":5}`,
	"PUT /extend":                       `{"size_gb":5}`,
	"POST /v1/reservations":             `{"orders":[{"app":"shop","config":{}}]}`,
	"POST /tasks":                       `{"image":"host","command":["true"]}`,
	"POST /schedule":                    `{"task":"work"}`,
	"POST /v1/images/pull":              `{"image":"nginx"}`,
	"POST /v1/images/prune":             `{}`,
	"POST /ip_assignments":              `{"type":"v6"}`,
	"PATCH /reservations/{reservation}": `{"ttl_seconds":5}`,
	"POST /releases":                    `{"status":"running","image_ref":"nginx"}`,
	"PATCH /releases/{release}":         `{"status":"complete"}`,
	"POST /secrets":                     `{"values":{"A":"b"}}`,
	"POST /secrets/{name}":              `{"value":"b"}`,
	"POST /v1/tokens":                   `{"name":"ci","apps":["shop"]}`,
	"POST /v1/wireguard_peers":          `{"name":"laptop","app":"shop","public_key":"CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","region":"gru"}`,
	"PUT /v1/policies":                  `{"region":"gru","shadow":true,"policy":{"name":"packed","base":"best-fit","curves":{"load":{"weight":1,"points":[[0,1],[2,0]]}}}}`,
	"POST /placements":                  `{"org_slug":"personal","count":1}`,
	"POST /view/queries":                `{"statement":"SELECT id FROM machines WHERE state = ?","params":["started"],"max_rows":5}`,
	"POST /view/subscriptions":          `{"statement":"SELECT id FROM machines","key":["id"]}`,
}

// misfits contains, for each schema type, JSON values of other types.
var misfits = map[string][]string{
	"string": {`{"a":1}`, `[7]`}, "integer": {`"x"`, `{}`, `[1]`, `true`}, "number": {`"x"`, `{}`, `[1]`}, "boolean": {`"perhaps"`, `7`, `{}`},
	"array": {`7`, `{"a":1}`}, "object": {`"x"`, `7`, `[1]`},
}

// strange contains unusual JSON values, which are sent for members of any type.
var strange = []string{`-1`, `9223372036854775807`, `-9223372036854775808`, `1e300`, `"\u0000"`, "\"\xff\xfe\"", `""`, `null`, `[]`, `[null]`, `{}`}

// TestBadInput sends every member of every body, at every depth, with invalid values. None of them
// may cause an internal error or a status that makes clients retry, and each error must be a
// sentence.
func TestBadInput(t *testing.T) {
	d, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{schemas: d.doc["components"].(map[string]any)["schemas"].(map[string]any)}
	tried, asks := 0, askRealView(t)
	for path, item := range d.doc["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			operation, _ := operation.(map[string]any)
			body, ok := operation["requestBody"].(map[string]any)
			method = strings.ToUpper(method)
			if !ok {
				continue
			}
			good := goodBody(method, path)
			t.Run(method+" "+path, func(t *testing.T) {
				s := start(t, func(c *broker.Config) { c.Queries = asks })
				m, v := s.machine(t, "w1", "web", bourse.StateStarted), s.volume("w1")
				made := decodeBody[release.Release](t, s.call(t, "POST", "/v1/apps/shop/releases", `{"status":"running"}`).Body.Bytes())
				target := strings.NewReplacer("{release}", string(made.ID), "{app}", "shop", "{machine}", string(m.ID), "{volume}", string(v.ID), "{key}", "k").Replace(path)
				schema := body["content"].(map[string]any)["application/json"].(map[string]any)["schema"]
				for _, c := range w.cases(good, schema) {
					tried++
					rec := s.call(t, method, target, c.body)
					got := machinesapi.ErrorBody{}
					_ = json.Unmarshal(rec.Body.Bytes(), &got)
					switch {
					case rec.Code >= 500, rec.Code >= 400 && got.Error == "":
						t.Errorf("%s: status %d: %.300s", c.body, rec.Code, rec.Body)
					case c.misfit && rec.Code < 400:
						t.Errorf("%s: %s is invalid, but the status is %d", c.body, c.member, rec.Code)
					case strings.Contains(got.Error, "does not fit") && !strings.Contains(got.Error, c.member):
						t.Errorf("%s: error %q does not mention %s", c.body, got.Error, c.member)
					}
				}
			})
		}
	}
	if tried < 500 {
		t.Errorf("only %d bodies were sent", tried)
	}
}

func goodBody(method, path string) string {
	best, body := "", "{}"
	for end, good := range goodBodies {
		of, suffix, _ := strings.Cut(end, " ")
		if of == method && strings.HasSuffix(path, suffix) && len(end) > len(best) {
			best, body = end, good
		}
	}
	return body
}

// badCase is a body with one invalid member.
type badCase struct {
	body, member string
	misfit       bool // the value has a wrong type
}

// walk generates bodies with invalid members from a valid body and its schema.
type walk struct {
	schemas map[string]any
	out     []badCase
}

func (w *walk) cases(good string, schema any) []badCase {
	w.out = nil
	var root map[string]any
	if err := json.Unmarshal([]byte(good), &root); err != nil {
		panic(err)
	}
	w.members(root, root, schema, 0)
	for _, body := range []string{`7`, `[]`, `"x"`, good + good, strings.Replace(good, "{", `{"color":{"a":[1]},`, 1), "{\"\xff\":1," + good[1:], strings.Repeat(`{"a":`, 20_000)} {
		w.out = append(w.out, badCase{body: body})
	}
	return w.out
}

// members adds the cases for each member of the object at, which is part of the body root.
func (w *walk) members(root, at map[string]any, schema any, depth int) {
	properties, _ := w.resolve(schema)["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		of := w.resolve(properties[name])
		was, had := at[name]
		values := map[string]bool{}
		for _, v := range strange {
			values[v] = false
		}
		if kind, ok := of["type"].(string); ok {
			for _, v := range misfits[kind] {
				values[v] = of["contentEncoding"] == nil || v[0] == '{' // a member that contains bytes also accepts a list of numbers
			}
		}
		for _, v := range slices.Sorted(maps.Keys(values)) {
			at[name] = "\x01"
			text, err := json.Marshal(root)
			if err != nil {
				panic(err)
			}
			body := strings.Replace(string(text), `"\u0001"`, v, 1)
			w.out = append(w.out, badCase{body, name, values[v]}, badCase{strings.Replace(body, "{", `{"`+name+`":`+v+`,`, 1), name, false})
		}
		if of["properties"] != nil && depth < 3 {
			below, ok := was.(map[string]any)
			if !ok {
				below = map[string]any{}
			}
			at[name] = below
			w.members(root, below, of, depth+1)
		}
		if at[name] = was; !had {
			delete(at, name)
		}
	}
}

// resolve follows the references in a schema. If the schema has several alternatives, resolve
// returns the first one.
func (w *walk) resolve(schema any) map[string]any {
	of, _ := schema.(map[string]any)
	for of != nil {
		if ref, ok := of["$ref"].(string); ok {
			of, _ = w.schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
			continue
		}
		forms, ok := of["anyOf"].([]any)
		if !ok {
			forms, ok = of["allOf"].([]any)
		}
		if !ok {
			break
		}
		of, _ = forms[0].(map[string]any)
	}
	return of
}
