package broker_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestHostileCreates checks that invalid input causes an error with the right code and a clear message, and has no
// other effect.
func TestHostileCreates(t *testing.T) {
	config := func(more string) string {
		return `{"config":{"image":"host","init":{"exec":["true"]},` + more + `}}`
	}
	long := strings.Repeat("x", 10<<10)
	cases := map[string]string{
		"empty":                           ``,
		"blank":                           " \n",
		"not JSON":                        `hello`,
		"half JSON":                       `{"config":{"image":"host"`,
		"two values":                      `{"config":` + hostConfig + `} {}`,
		"an array":                        `[]`,
		"a number":                        `7`,
		"null":                            `null`,
		"null config":                     `{"config":null}`,
		"no config":                       `{}`,
		"no image":                        `{"config":{}}`,
		"host without command":            `{"config":{"image":"host"}}`,
		"nested deep":                     strings.Repeat(`{"config":`, 100_000),
		"deeply nested services":          config(`"services":` + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000)),
		"cpus negative":                   config(`"guest":{"cpus":-1}`),
		"cpus enormous":                   config(`"guest":{"cpus":9223372036854775807}`),
		"cpus overflow":                   config(`"guest":{"cpus":9223372036854775808}`),
		"cpus 1e999":                      config(`"guest":{"cpus":1e999}`),
		"cpus NaN":                        config(`"guest":{"cpus":NaN}`),
		"cpus fraction":                   config(`"guest":{"cpus":0.5}`),
		"cpus text":                       config(`"guest":{"cpus":"2"}`),
		"memory negative":                 config(`"guest":{"memory_mb":-256}`),
		"memory enormous":                 config(`"guest":{"memory_mb":9223372036854775807}`),
		"gpus negative":                   config(`"guest":{"gpus":-1,"gpu_kind":"a10"}`),
		"gpus enormous":                   config(`"guest":{"gpus":99999999,"gpu_kind":"a10"}`),
		"gpu kind with a path":            config(`"guest":{"gpus":1,"gpu_kind":"../../x"}`),
		"cpu kind unknown":                config(`"guest":{"cpu_kind":"quantum"}`),
		"size unknown":                    config(`"size":"shared-cpu-0x"`),
		"requirement zero":                config(`"requirements":{"slots":0}`),
		"requirement negative":            config(`"requirements":{"slots":-5}`),
		"requirement enormous":            config(`"requirements":{"slots":9223372036854775807}`),
		"requirement overflow":            config(`"requirements":{"slots":9223372036854775808}`),
		"requirement fraction":            config(`"requirements":{"slots":0.5}`),
		"requirement 1e400":               config(`"requirements":{"slots":1e400}`),
		"requirement null":                config(`"requirements":{"slots":null}`),
		"requirement a list":              config(`"requirements":{"slots":[1]}`),
		"requirement true":                config(`"requirements":{"slots":true}`),
		"requirement no name":             config(`"requirements":{"":1}`),
		"requirement wildcard":            config(`"requirements":{"slots.*":1}`),
		"reservation nonsense":            `{"reservation":"x","config":` + hostConfig + `}`,
		"reservation key without workers": `{"reservation":"01J00000000000000000000000","config":` + hostConfig + `}`,
		"reservation long":                `{"reservation":"` + long + `","config":` + hostConfig + `}`,
		"requirement bad name":            config(`"requirements":{"a/b":"c"}`),
		"env with NUL":                    config(`"env":{"A":"\u0000"}`),
		"env with =":                      config(`"env":{"A=B":"c"}`),
		"stop timeout enormous":           config(`"stop_config":{"timeout":"9000h"}`),
		"stop timeout overflow":           config(`"stop_config":{"timeout":1e30}`),
		"signal unknown":                  config(`"stop_config":{"signal":"SIGNOPE"}`),
		"signal number unknown":           config(`"stop_config":{"signal":-9}`),
		"restart unknown":                 config(`"restart":{"policy":"sometimes"}`),
		"region unknown":                  `{"region":"xyz","config":` + hostConfig + `}`,
		"region with spaces":              `{"region":"g r u","config":` + hostConfig + `}`,
		"region long":                     `{"region":"` + long + `","config":` + hostConfig + `}`,
		"regions many":                    `{"region":"` + strings.Repeat("gru,", 5000) + `","config":` + hostConfig + `}`,
		"name with a space":               `{"name":"a b","config":` + hostConfig + `}`,
		"name with a slash":               `{"name":"a/b","config":` + hostConfig + `}`,
		"name with dots":                  `{"name":"..","config":` + hostConfig + `}`,
		"name with a control":             `{"name":"a\u0007b","config":` + hostConfig + `}`,
		"name long":                       `{"name":"` + long + `","config":` + hostConfig + `}`,
		"lease_ttl negative":              `{"lease_ttl":-1,"config":` + hostConfig + `}`,
		"lease_ttl enormous":              `{"lease_ttl":9223372036854775807,"config":` + hostConfig + `}`,
		"race negative":                   `{"race":-1,"config":` + hostConfig + `}`,
		"race enormous":                   `{"race":1000000,"config":` + hostConfig + `}`,
		"deadline negative":               `{"deadline":"-1s","config":` + hostConfig + `}`,
		"deadline enormous":               `{"deadline":"2000h","config":` + hostConfig + `}`,
		"deadline nonsense":               `{"deadline":"soon","config":` + hostConfig + `}`,
		"image with a newline":            `{"config":{"image":"a\nb"}}`,
		"image long":                      `{"config":{"image":"` + long + `"}}`,
		"working dir is relative":         `{"config":{"image":"host","init":{"exec":["true"],"working_dir":"../.."}}}`,
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			rec := s.call(t, "POST", createPath, body)
			got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
			if rec.Code != http.StatusBadRequest || got.Code != bourse.CodeInvalid || got.Error == "" {
				t.Errorf("status %d, body %+v", rec.Code, got)
			}
			if len(got.Error) > 1024 {
				t.Errorf("the message has %d bytes: it contains the caller's whole input", len(got.Error))
			}
			if len(s.orders) != 0 {
				t.Errorf("an order was placed: %+v", s.orders[0])
			}
		})
	}
}

func TestHostileOrderIDs(t *testing.T) {
	s := start(t)
	for _, id := range []string{"x", "../../etc", strings.Repeat("0", 27), "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01J0000000000000000000000U"} {
		if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`, "Bourse-Order-Id", id); rec.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d", id, rec.Code)
		}
	}
}

// zeros is an endless body of spaces. It counts the bytes read.
type zeros struct{ read int64 }

func (z *zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	z.read += int64(len(b))
	return len(b), nil
}

func TestAHugeBodyIsNotRead(t *testing.T) {
	s := start(t)
	for name, length := range map[string]int64{"announced": 100 << 20, "chunked": -1} {
		body := &zeros{}
		req := httptest.NewRequestWithContext(t.Context(), "POST", createPath, io.LimitReader(body, 100<<20))
		req.ContentLength = length
		rec := httptest.NewRecorder()
		s.handler.ServeHTTP(rec, req)
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusRequestEntityTooLarge || got.Code != bourse.CodeInvalid {
			t.Errorf("%s: status %d, body %+v", name, rec.Code, got)
		}
		if body.read > 6<<20 {
			t.Errorf("%s: %d bytes were read", name, body.read)
		}
	}
}

func TestHostilePaths(t *testing.T) {
	s := start(t)
	id := s.machine(t, "w1", "web", bourse.StateStarted).ID
	for path, want := range map[string]int{
		"/v1/apps/" + strings.Repeat("a", 10<<10): 404,
		"/v1/apps/a%20b":                                            404,
		"/v1/apps/%00/machines":                                     404,
		"/v1/apps/shop/machines/zz":                                 404,
		"/v1/apps/shop/machines/" + strings.Repeat("f", 14):         404, // no worker has the tag in this ID
		"/v1/apps/shop/machines/00000000000000":                     404, // no worker has the tag zero
		"/v1/apps/shop/machines/" + string(id[:6]) + "00000000":     404,
		"/v1/apps/shop/machines/" + strings.ToUpper(string(id)):     404,
		"/v1/apps/other/machines/" + string(id):                     404, // the machine belongs to another app
		"/v1/apps/shop/machines/" + string(id) + "/nonsense":        404,
		"/v1/orders/nonsense":                                       400,
		"/v1/orders/01J00000000000000000000000":                     404,
		"/v1/apps/shop%2F":                                          404, // the slash is part of the name
		"/v1/apps/shop%2F/":                                         404,
		"/v1/workers/..%2f..%2fetc":                                 404,
		"/v1/nonsense":                                              404,
		"/v1/apps/shop/machines/" + string(id) + "/wait?state=x":    400,
		"/v1/apps/shop/machines/" + string(id) + "/wait?timeout=x":  400,
		"/v1/apps/shop/machines/" + string(id) + "/wait?timeout=-1": 400,
		"/v1/apps/shop/machines/" + string(id) + "/events?limit=x":  400,
		"/v1/apps/shop/machines/" + string(id) + "/events?limit=-1": 400,
		"/v1/apps/shop/machines/" + string(id) + "/logs?since=x":    400,
		"/v1/apps/shop/machines/" + string(id) + "/logs?tail=x":     400,
		"/v1/apps/shop/machines?include_deleted=x":                  400,
	} {
		rec := s.call(t, "GET", path, "")
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != want || got.Error == "" || got.Code == "" {
			t.Errorf("GET %.80s: status %d, body %+v; want %d", path, rec.Code, got, want)
		}
	}
	rec := s.call(t, "PUT", "/v1/apps/shop/machines", "{}")
	if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Allow") != "GET, POST" {
		t.Errorf("PUT: status %d, Allow %q", rec.Code, rec.Header().Get("Allow"))
	}
}

func TestHostileVerbBodies(t *testing.T) {
	s := start(t)
	m := "/v1/apps/shop/machines/" + string(s.machine(t, "w1", "web", bourse.StateStarted).ID)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/stop", `{"timeout":"-1s"}`},
		{"POST", "/stop", `{"timeout":"301s"}`},
		{"POST", "/stop", `{"timeout":"never"}`},
		{"POST", "/stop", `{"signal":"SIGNOPE"}`},
		{"POST", "/stop", `{"signal":99999999999999999999}`},
		{"POST", "/stop", `[`},
		{"POST", "/restart?timeout=-5", ``},
		{"POST", "/restart?signal=NOPE", ``},
		{"POST", "/restart?force_stop=perhaps", ``},
		{"POST", "/signal", ``},
		{"POST", "/signal", `{}`},
		{"POST", "/signal", `{"signal":0}`},
		{"POST", "/signal", `{"signal":{}}`},
		{"POST", "/exec", ``},
		{"POST", "/exec", `{}`},
		{"POST", "/exec", `{"command":[""]}`},
		{"POST", "/exec", `{"command":["a\u0000b"]}`},
		{"POST", "/exec", `{"cmd":"echo 'open"}`},
		{"POST", "/exec", `{"cmd":"true","timeout":-1}`},
		{"POST", "/exec", `{"cmd":"true","timeout":601}`},
		{"POST", "/exec", `{"cmd":"true","timeout":9223372036854775807}`},
		{"POST", "/exec", `{"cmd":"true","container":"side"}`},
		{"POST", "/lease?ttl=-1", ``},
		{"POST", "/lease?ttl=x", ``},
		{"POST", "/lease?ttl=99999999999999999999", ``},
		{"POST", "/lease", `{"ttl":86401}`},
		{"PATCH", "/metadata", ``},
		{"PATCH", "/metadata", `{}`},
		{"PATCH", "/metadata", `{"metadata":{"a":1}}`},
		{"PATCH", "/metadata", `{"metadata":{"":"x"}}`},
		{"POST", "/metadata/k", `{"value":7}`},
		{"POST", "/metadata/k", `{"value":"` + strings.Repeat("x", 1<<17+1) + `"}`},
		{"DELETE", "?force=perhaps", ``},
	} {
		rec := s.call(t, c.method, m+c.path, c.body)
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusBadRequest || got.Code != bourse.CodeInvalid {
			t.Errorf("%s %s %.60s: status %d, body %+v", c.method, c.path, c.body, rec.Code, got)
		}
	}
	if n := len(s.workers["w1"].acts) + len(s.workers["w1"].execs); n != 0 {
		t.Errorf("%d requests reached the worker", n)
	}
}
