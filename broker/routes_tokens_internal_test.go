package broker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/access"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// reach is for whom an endpoint is there.
type reach struct {
	of      string // anyone, token, app, machine, metrics, cluster
	changes bool
	narrow  bool // it shows a token of machines no others
}

// reaches is every endpoint. A new one gets a line here, by hand: what it is for is
// compared with what the gate makes of it.
var reaches = map[string]reach{
	"GET /v1/health":           {of: "anyone"},
	"GET /v1/platform/regions": {of: "anyone"},
	"GET /openapi.json":        {of: "anyone"},

	"GET /v1/apps":                               {of: "token", narrow: true},
	"POST /v1/apps":                              {of: "token", changes: true},
	"GET /v1/machines":                           {of: "token", narrow: true},
	"GET /v1/orders":                             {of: "token"},
	"GET /v1/orders/{order}":                     {of: "token"},
	"GET /v1/orgs/{org}/machines":                {of: "token"},
	"POST /v1/platform/placements":               {of: "token", changes: true},
	"GET /v1/orgs/{org}/volumes":                 {of: "token"},
	"GET /v1/reservations":                       {of: "token"},
	"POST /v1/reservations":                      {of: "token", changes: true},
	"GET /v1/reservations/{reservation}":         {of: "token"},
	"PATCH /v1/reservations/{reservation}":       {of: "token", changes: true},
	"DELETE /v1/reservations/{reservation}":      {of: "token", changes: true},
	"POST /schedule":                             {of: "token", changes: true},
	"GET /v1/tokens":                             {of: "token"},
	"POST /v1/tokens":                            {of: "token", changes: true},
	"DELETE /v1/tokens/{token}":                  {of: "token", changes: true},
	"GET /v1/tokens/current":                     {of: "token", narrow: true},
	"GET /v1/apps/{app}":                         {of: "app", narrow: true},
	"DELETE /v1/apps/{app}":                      {of: "app", changes: true},
	"POST /v1/apps/{app}/deploy_token":           {of: "app", changes: true},
	"GET /v1/apps/{app}/machines":                {of: "app", narrow: true},
	"POST /v1/apps/{app}/machines":               {of: "app", changes: true},
	"POST /v1/apps/{app}/quotes":                 {of: "app", changes: true},
	"POST /v1/apps/{app}/tasks":                  {of: "app", changes: true},
	"GET /v1/apps/{app}/orders/{order}/pull":     {of: "app"},
	"GET /v1/apps/{app}/volumes":                 {of: "app"},
	"POST /v1/apps/{app}/volumes":                {of: "app", changes: true},
	"GET /v1/apps/{app}/volumes/{volume}":        {of: "app"},
	"PUT /v1/apps/{app}/volumes/{volume}":        {of: "app", changes: true},
	"DELETE /v1/apps/{app}/volumes/{volume}":     {of: "app", changes: true},
	"PUT /v1/apps/{app}/volumes/{volume}/extend": {of: "app", changes: true},

	"GET /v1/apps/{app}/volumes/{volume}/snapshots":  {of: "app"},
	"POST /v1/apps/{app}/volumes/{volume}/snapshots": {of: "app", changes: true},

	"GET /v1/apps/{app}/images/resolve":            {of: "app"},
	"GET /v1/apps/{app}/secrets":                   {of: "app"}, // never their values
	"POST /v1/apps/{app}/secrets":                  {of: "app", changes: true},
	"GET /v1/apps/{app}/secrets/{name}":            {of: "app"},
	"POST /v1/apps/{app}/secrets/{name}":           {of: "app", changes: true},
	"DELETE /v1/apps/{app}/secrets/{name}":         {of: "app", changes: true},
	"GET /v1/apps/{app}/proxies":                   {of: "app"},
	"GET /v1/apps/{app}/releases":                  {of: "app"},
	"POST /v1/apps/{app}/releases":                 {of: "app", changes: true},
	"GET /v1/apps/{app}/releases/current":          {of: "app"},
	"GET /v1/apps/{app}/releases/{release}":        {of: "app"},
	"PATCH /v1/apps/{app}/releases/{release}":      {of: "app", changes: true},
	"GET /v1/apps/{app}/ip_assignments":            {of: "app"},
	"POST /v1/apps/{app}/ip_assignments":           {of: "app", changes: true},
	"DELETE /v1/apps/{app}/ip_assignments/{ip}":    {of: "app", changes: true},
	"GET /v1/apps/{app}/certificates":              {of: "app"},
	"GET /v1/apps/{app}/certificates/{rest...}":    {of: "app"},
	"POST /v1/apps/{app}/certificates/{rest...}":   {of: "app", changes: true},
	"DELETE /v1/apps/{app}/certificates/{rest...}": {of: "app", changes: true},
	"GET /v1/apps/{app}/secretkeys":                {of: "app"},
	"GET /v1/apps/{app}/secretkeys/{rest...}":      {of: "app"},
	"POST /v1/apps/{app}/secretkeys/{rest...}":     {of: "app", changes: true},
	"DELETE /v1/apps/{app}/secretkeys/{rest...}":   {of: "app", changes: true},

	"GET /v1/apps/{app}/machines/{machine}":                   {of: "machine"},
	"POST /v1/apps/{app}/machines/{machine}":                  {of: "machine", changes: true},
	"DELETE /v1/apps/{app}/machines/{machine}":                {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/start":            {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/stop":             {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/restart":          {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/suspend":          {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/signal":           {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/cordon":           {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/uncordon":         {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/exec":             {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/exec/stream":      {of: "machine", changes: true},
	"POST /v1/apps/{app}/machines/{machine}/tunnel":           {of: "machine", changes: true},
	"GET /v1/apps/{app}/machines/{machine}/wait":              {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/events":            {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/versions":          {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/logs":              {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/ps":                {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/usage":             {of: "machine"},
	"GET /v1/apps/{app}/machines/{machine}/lease":             {of: "machine"},
	"POST /v1/apps/{app}/machines/{machine}/lease":            {of: "machine", changes: true},
	"DELETE /v1/apps/{app}/machines/{machine}/lease":          {of: "machine", changes: true},
	"GET /v1/apps/{app}/machines/{machine}/metadata":          {of: "machine"},
	"PUT /v1/apps/{app}/machines/{machine}/metadata":          {of: "machine", changes: true},
	"PATCH /v1/apps/{app}/machines/{machine}/metadata":        {of: "machine", changes: true},
	"GET /v1/apps/{app}/machines/{machine}/metadata/{key}":    {of: "machine"},
	"POST /v1/apps/{app}/machines/{machine}/metadata/{key}":   {of: "machine", changes: true},
	"DELETE /v1/apps/{app}/machines/{machine}/metadata/{key}": {of: "machine", changes: true},

	"GET /metrics":                     {of: "metrics"},
	"GET /v1/metrics/targets":          {of: "metrics"},
	"GET /v1/workers/{worker}/metrics": {of: "metrics"},

	"GET /v1/images":                              {of: "cluster"},
	"POST /v1/images/pull":                        {of: "cluster", changes: true},
	"POST /v1/images/prune":                       {of: "cluster", changes: true},
	"GET /v1/proxies":                             {of: "cluster"},
	"GET /v1/workers":                             {of: "cluster"},
	"GET /v1/workers/{worker}":                    {of: "cluster"},
	"DELETE /v1/workers/{worker}":                 {of: "cluster", changes: true},
	"POST /v1/workers/{worker}/cordon":            {of: "cluster", changes: true},
	"POST /v1/workers/{worker}/uncordon":          {of: "cluster", changes: true},
	"GET /v1/workers/{worker}/runs":               {of: "cluster"},
	"POST /v1/workers/{worker}/runs/{run}/retry":  {of: "cluster", changes: true},
	"POST /v1/workers/{worker}/runs/{run}/skip":   {of: "cluster", changes: true},
	"POST /v1/workers/{worker}/runs/{run}/cancel": {of: "cluster", changes: true},
	"POST /v1/view/queries":                       {of: "cluster", changes: true},
	"POST /v1/view/subscriptions":                 {of: "cluster", changes: true},
	"GET /v1/view/subscriptions/{id}":             {of: "cluster"},
	"GET /v1/view/health":                         {of: "cluster"},
}

// kind is a token of the walk: what it is good for, in the words of the table.
type kind struct {
	name     string
	grant    *access.Grant // nil: no token is shown, or one that is known to no one
	shown    string
	ended    bool
	apps     bool // it reaches app web
	machine  bool // it reaches machine ours alone
	other    bool // or another one alone
	readOnly bool
	cluster  bool
}

const ours, others = "148e21ea1d5389", "148e21ea1d5390"

func kinds(now time.Time) []kind {
	web := []bourse.AppRef{{Name: "web", ID: "1"}}
	return []kind{
		{name: "none"},
		{name: "unknown", shown: access.NewToken()},
		{name: "garbage", shown: strings.Repeat("\xff\x00§", 1000)},
		{name: "expired", grant: &access.Grant{Org: "*", ExpiresAt: now}, ended: true},
		{name: "revoked", grant: &access.Grant{Org: "*", RevokedAt: now}, ended: true},
		{name: "other organisation", grant: &access.Grant{Org: "zoo"}},
		{name: "other app", grant: &access.Grant{Org: "acme", Apps: []bourse.AppRef{{Name: "shop", ID: "2"}}}},
		{name: "former app of the name", grant: &access.Grant{Org: "acme", Apps: []bourse.AppRef{{Name: "web", ID: "0"}}}},
		{name: "other machine", grant: &access.Grant{Org: "acme", Apps: web, Machines: []bourse.MachineID{others}}, apps: true, other: true},
		{name: "the machine", grant: &access.Grant{Org: "acme", Apps: web, Machines: []bourse.MachineID{ours}}, apps: true, machine: true},
		{name: "the machine, read-only", grant: &access.Grant{Org: "acme", Apps: web, Machines: []bourse.MachineID{ours}, ReadOnly: true}, apps: true, machine: true, readOnly: true},
		{name: "the app", grant: &access.Grant{Org: "acme", Apps: web}, apps: true},
		{name: "the app, read-only", grant: &access.Grant{Org: "acme", Apps: web, ReadOnly: true}, apps: true, readOnly: true},
		{name: "the organisation", grant: &access.Grant{Org: "acme"}, apps: true},
		{name: "everything, read-only", grant: &access.Grant{Org: "*", ReadOnly: true}, apps: true, cluster: true, readOnly: true},
		{name: "everything", grant: &access.Grant{Org: "*"}, apps: true, cluster: true},
	}
}

// want says in the words of the table who may what.
func (k *kind) want(to reach) bourse.Code {
	narrow := k.machine || k.other
	switch {
	case to.of == "anyone":
		return ""
	case k.grant == nil || k.ended:
		return bourse.CodeUnauthorized
	case (to.of == "metrics" || to.of == "cluster") && !k.cluster,
		(to.of == "app" || to.of == "machine") && !k.apps,
		k.readOnly && to.changes,
		narrow && to.of != "machine" && !to.narrow,
		k.other && to.of == "machine":
		return bourse.CodeForbidden
	}
	return ""
}

// Every endpoint, asked with every kind of token.
func TestEveryEndpointAndEveryToken(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	book := &grantBook{byID: map[string]access.Grant{}, changed: make(chan struct{}, 1)}
	all := kinds(now)
	for i := range all {
		if g := all[i].grant; g != nil {
			all[i].shown = access.NewToken()
			g.ID, g.Digest, _ = access.Digest(all[i].shown)
			g.Name = "ci"
			book.byID[g.ID] = *g
		}
	}
	issued := access.NewIssued(book, func() time.Time { return now })
	s, routes, _ := compose(&Config{
		View: appsOnly{}, Tokens: issued, Issued: issued, Orders: throttle.TurnsConfig{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	})
	served := map[string]bool{}
	for _, rt := range routes {
		to, ok := reaches[rt.Pattern]
		if !ok {
			t.Errorf("%s is not in the table: who may call it?", rt.Pattern)
			continue
		}
		served[rt.Pattern] = true
		method, _, _ := strings.Cut(rt.Pattern, " ")
		for _, k := range all {
			for _, scheme := range []string{"Bearer ", "FlyV1 fm2_x,"} {
				r := &endpoint.Request{Request: httptest.NewRequestWithContext(t.Context(), method, "/", nil)}
				if k.shown != "" {
					r.Header.Set("Authorization", scheme+k.shown)
				}
				r.SetPathValue("app", "web")
				if strings.Contains(rt.Pattern, "{machine}") {
					r.SetPathValue("machine", ours)
				}
				if got := bourse.CodeOf(s.Gate.Authorise(&rt, r)); got != k.want(to) {
					t.Errorf("%s with %s, %s: %q, want %q", rt.Pattern, scheme, k.name, got, k.want(to))
				}
				if method == http.MethodGet && to.changes {
					t.Errorf("%s: a read-only token may call it, and it changes something", rt.Pattern)
				}
			}
		}
	}
	for pattern := range reaches {
		if !served[pattern] {
			t.Errorf("the table has %s, which is no endpoint", pattern)
		}
	}
}

// appsOnly is a view with app web of acme.
type appsOnly struct{ lookup.View }

func (appsOnly) Synced() bool { return true }

func (appsOnly) App(_ context.Context, name bourse.AppName) (bourse.App, bool, error) {
	return bourse.App{Name: name, ID: "1", Org: "acme"}, name == "web", nil
}

// grantBook is grants in memory.
type grantBook struct {
	byID    map[string]access.Grant
	changed chan struct{}
}

func (b *grantBook) Find(_ context.Context, id string) (access.Grant, bool, error) {
	g, ok := b.byID[id]
	return g, ok, nil
}
func (b *grantBook) All(context.Context) ([]access.Grant, error) { return nil, nil }
func (b *grantBook) Put(context.Context, access.Grant) error     { return nil }
func (b *grantBook) Changed() <-chan struct{}                    { return b.changed }
func (b *grantBook) Synced() bool                                { return true }
