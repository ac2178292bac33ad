package broker_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
)

func quotas(text string) func(*broker.Config) {
	return func(c *broker.Config) {
		q, err := lookup.Read([]byte(text))
		if err != nil {
			panic(err)
		}
		c.Quotas = q
	}
}

// TestQuotas checks that each quota refuses exactly the requests that would exceed it, and that the error mentions the
// quota.
func TestQuotas(t *testing.T) {
	const machine = `{"config":` + hostConfig + `,"region":"gru"}`
	for name, tt := range map[string]struct {
		quotas, path, body string
		status             int
		word               string
	}{
		"machines of an app":                 {`{"app":{"machines":2}}`, createPath, machine, 403, `app "default" may have 2 machines`},
		"machines of one app":                {`{"apps":{"default":{"machines":2}}}`, createPath, machine, 403, `app "default" may have 2 machines`},
		"machines of an organization":        {`{"orgs":{"personal":{"machines":2}}}`, createPath, machine, 403, `organization "personal" may have 2 machines`},
		"bytes of config":                    {`{"app":{"config_bytes":300}}`, createPath, machine, 403, "may have 300 bytes of config"},
		"orders a second of an app":          {`{"app":{"orders_per_second":2}}`, createPath, machine, 429, `app "default" may place 2 orders a second`},
		"volumes of an app":                  {`{"app":{"volumes":2}}`, "/v1/apps/default/volumes", `{"name":"data","region":"gru","size_gb":1}`, 403, `app "default" may have 2 volumes`},
		"apps of an organization":            {`{"org":{"apps":3}}`, "/v1/apps", `{"name":"app-N","org_slug":"personal"}`, 403, `organization "personal" may have 3 apps`},
		"quotes count as orders":             {`{"app":{"orders_per_second":2}}`, "/v1/apps/default/quotes", machine, 429, "orders a second"},
		"the default quotas are not reached": {`{}`, createPath, machine, 0, ""},
		"another app's quota does not apply": {`{"apps":{"web":{"machines":1}}}`, createPath, machine, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, quotas(tt.quotas))
			s.app(t, "default", "personal")
			good := 0
			for i := range 4 {
				rec := s.call(t, "POST", tt.path, strings.ReplaceAll(tt.body, "app-N", "app-"+strconv.Itoa(i)))
				if rec.Code < 300 {
					good++
					continue
				}
				got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
				if rec.Code != tt.status || !strings.Contains(got.Error, tt.word) {
					t.Errorf("status %d: %s, want %d with %q", rec.Code, rec.Body, tt.status, tt.word)
				}
				if rec.Code == http.StatusTooManyRequests && rec.Header().Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
			}
			if tt.status == 0 && good != 4 || tt.status != 0 && good != 2 {
				t.Errorf("%d of 4 were accepted", good)
			}
		})
	}
}

// TestQuotaPermitsRepeatedOrders checks that repeating an order that has already been filled
// returns its machine, even if the app has reached its quota.
func TestQuotaPermitsRepeatedOrders(t *testing.T) {
	s := start(t, quotas(`{"app":{"machines":1}}`))
	s.app(t, "default", "personal")
	id := string(bourse.NewOrderID())
	for range 2 {
		if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"gru"}`, machinesapi.HeaderOrderID, id); rec.Code != http.StatusOK {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	}
}

func FuzzReadQuotas(f *testing.F) {
	for _, text := range []string{`{}`, `{"org":{"apps":1},"apps":{"web":{"machines":2,"config_bytes":3}}}`, `{"app":{"machines":-1}}`, `{"other":1}`, `{}{}`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := lookup.Read(text)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("code of %v", err)
			}
			return
		}
		if q.App.Machines < 0 || q.Org.Apps < 0 {
			t.Errorf("a negative quota was accepted from %q", text)
		}
	})
}
