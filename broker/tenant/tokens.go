package tenant

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Tokens serves the token endpoints.
type Tokens struct {
	Issued   *endpoint.Issued // nil: this broker requires no tokens, or accepts only those from a file
	Gate     *endpoint.Gate
	Machines Machines
	Now      func() time.Time
}

// Machines is the part of [lookup.Machines] that Tokens uses.
type Machines interface {
	// Has reports whether the app has a machine with this ID. Errors: unavailable.
	Has(ctx context.Context, app *bourse.App, id bourse.MachineID) (bool, error)
}

// Routes returns the endpoints of tokens.
func (h *Tokens) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/tokens", endpoint.Token, h.create).Reads(machinesapi.CreateToken{}).Makes(machinesapi.Token{}),
		endpoint.On("GET /v1/tokens", endpoint.Token, h.list).Writes(machinesapi.TokenList{}),
		endpoint.On("DELETE /v1/tokens/{token}", endpoint.Token, h.revoke).Writes(machinesapi.RevokedToken{}),
		endpoint.ForMachines("GET /v1/tokens/current", endpoint.Token, h.current).Writes(machinesapi.CurrentTokens{}),
		endpoint.On("POST "+endpoint.OneApp+"/deploy_token", endpoint.App, h.deployToken).MayRead(machinesapi.DeployToken{}).Writes(machinesapi.NewDeployToken{}),
	}
}

func (h *Tokens) create(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.CreateToken
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	token, grant, err := h.make(r, &in)
	if err != nil {
		return err
	}
	out := show(&grant)
	out.Token = token
	return endpoint.WriteJSON(w, http.StatusCreated, out)
}

// deployToken creates a token for the app in the request's path. It serves older clients.
func (h *Tokens) deployToken(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.DeployToken
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	token, _, err := h.make(r, &machinesapi.CreateToken{Name: "deploy token", Apps: []bourse.AppName{r.App()}, Expiry: in.Expiry})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.NewDeployToken{Token: token})
}

// make creates and stores a token. It returns the token and its record.
func (h *Tokens) make(r *endpoint.Request, in *machinesapi.CreateToken) (string, inventory.Token, error) {
	if h.Issued == nil {
		return "", inventory.Token{}, errNoTokens()
	}
	g, err := h.grantOf(r, in)
	if err != nil {
		return "", g, err
	}
	if err := h.mayHave(r.Context(), g.Org); err != nil {
		return "", g, err
	}
	token := endpoint.NewToken()
	g.ID, g.Digest, _ = endpoint.Digest(token)
	r.Note(slog.String("token", g.ID), slog.String("name", g.Name), slog.String("org", g.Org))
	if err := h.Issued.PutToken(r.Context(), &g); err != nil {
		return "", g, err
	}
	return token, g, nil
}

// Limits for the tokens of one organization: the number of valid tokens, and the number of stored
// tokens, including those that are no longer valid.
const (
	maxTokens     = 1_000
	maxRemembered = 10_000
)

func (h *Tokens) mayHave(ctx context.Context, org string) error {
	all, err := h.Issued.Tokens(ctx)
	if err != nil {
		return err
	}
	live, remembered, now := 0, 0, h.Now()
	for i := range all {
		if all[i].Org == org {
			remembered++
			if endpoint.IsValid(&all[i], now) {
				live++
			}
		}
	}
	if live < maxTokens && remembered < maxRemembered {
		return nil
	}
	return bourse.Errorf(bourse.CodeForbidden, machinesapi.QuotaText+"organization %s may have %d valid tokens, and %d in total, including expired and revoked ones; revoke some, and use tokens that expire",
		bourse.Quoted(org), maxTokens, maxRemembered)
}

// list lists the tokens that the caller may revoke.
func (h *Tokens) list(w http.ResponseWriter, r *endpoint.Request) error {
	out := machinesapi.TokenList{Tokens: []machinesapi.Token{}}
	all, err := h.all(r.Context())
	if err != nil {
		return err
	}
	for i := range all {
		if mayRevoke(&r.Who, &all[i]) {
			out.Tokens = append(out.Tokens, show(&all[i]))
		}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

func (h *Tokens) all(ctx context.Context) ([]inventory.Token, error) {
	if h.Issued == nil {
		return nil, nil
	}
	return h.Issued.Tokens(ctx)
}

// revoke revokes a token. If the request has made=true, it also revokes all tokens that were
// created with that token, directly or indirectly.
func (h *Tokens) revoke(w http.ResponseWriter, r *endpoint.Request) error {
	id := r.PathValue("token")
	made, err := endpoint.QueryBool(r, "made")
	if err != nil {
		return err
	}
	if err := endpoint.ValidID(id); err != nil {
		return err
	}
	all, err := h.all(r.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(g inventory.Token) bool { return g.ID == id })
	if i < 0 || !mayRevoke(&r.Who, &all[i]) {
		return bourse.Errorf(bourse.CodeNotFound, "token %s not found", id) // the reply must not reveal that the token exists
	}
	out := machinesapi.RevokedToken{OK: true, Revoked: []string{}, StillValid: []string{}}
	for _, g := range madeWith(all, id) {
		switch {
		case !g.RevokedAt.IsZero():
		case g.ID == id || made:
			g.RevokedAt = h.Now().UTC()
			if err := h.Issued.PutToken(r.Context(), &g); err != nil {
				return err
			}
			out.Revoked = append(out.Revoked, g.ID)
		case endpoint.IsValid(&g, h.Now()):
			out.StillValid = append(out.StillValid, g.ID)
		}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// madeWith returns the token with the given ID, and all tokens that were created with it, directly
// or indirectly.
func madeWith(all []inventory.Token, id string) []inventory.Token {
	of := map[string][]inventory.Token{}
	for _, g := range all {
		of[g.MadeWith] = append(of[g.MadeWith], g)
		if g.ID == id {
			of["self"] = []inventory.Token{g} // "self" is not a valid ID
		}
	}
	out := of["self"]
	for i := 0; i < len(out); i++ { // there are no cycles, because a token is older than the tokens that are created with it
		out = append(out, of[out[i].ID]...)
		delete(of, out[i].ID) // ends the loop even if a faulty broker has stored a cycle
	}
	return out
}

// current describes the permissions of the caller's own token.
func (h *Tokens) current(w http.ResponseWriter, r *endpoint.Request) error {
	who := &r.Who
	org := cmp.Or(who.Org, machinesapi.AllOrgs)
	out := machinesapi.CurrentToken{
		ID: who.Token, Org: org, Organization: org, Apps: names(who.Apps), User: who.Name, Machines: append([]bourse.MachineID{}, who.Machines...),
		ReadOnly: who.ReadOnly, ExpiresAt: timeOrNil(who.Until),
	}
	if len(who.Machines) > 0 {
		out.Restricted = string(who.Machines[0])
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.CurrentTokens{Tokens: []machinesapi.CurrentToken{out}})
}

func show(g *inventory.Token) machinesapi.Token {
	return machinesapi.Token{
		ID: g.ID, Name: g.Name, Org: g.Org, Apps: names(g.Apps), Machines: append([]bourse.MachineID{}, g.Machines...), ReadOnly: g.ReadOnly,
		MadeBy: g.MadeBy, MadeWith: g.MadeWith, CreatedAt: g.CreatedAt, ExpiresAt: timeOrNil(g.ExpiresAt), RevokedAt: timeOrNil(g.RevokedAt),
	}
}

func names(apps []bourse.AppRef) []bourse.AppName {
	out := make([]bourse.AppName, len(apps))
	for i, app := range apps {
		out[i] = app.Name
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func errNoTokens() error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "this broker does not require tokens: start it without --insecure, or with a tokens file in --credentials")
}
