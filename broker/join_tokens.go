package broker

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Invitations creates join tokens and records how often each token was used.
type Invitations interface {
	Make(terms enroll.Terms, now time.Time) (i enroll.Issued, text string, err error)
	List() []enroll.Issued
	Revoke(id string) error
}

// joinTokenHandler serves the join token endpoints.
type joinTokenHandler struct{ *Config }

func (h *joinTokenHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/join_tokens", endpoint.Cluster, h.create).Reads(machinesapi.CreateJoinToken{}).Makes(machinesapi.JoinToken{}),
		endpoint.On("GET /v1/join_tokens", endpoint.Cluster, h.list).Writes(machinesapi.JoinTokenList{}),
		endpoint.On("DELETE /v1/join_tokens/{token}", endpoint.Cluster, h.revoke).Writes(struct{}{}),
	}
}

// Limits for a join token.
const (
	maxJoinUses = 10_000
	maxJoinTTL  = 30 * 24 * time.Hour
)

func (h *joinTokenHandler) create(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.CreateJoinToken
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	if err := h.errDisabled(); err != nil {
		return err
	}
	now := h.Now()
	terms := enroll.Terms{Roles: in.Roles, Region: in.Region, Uses: cmp.Or(in.Uses, 1), Expires: now.Add(cmp.Or(time.Duration(in.TTL), time.Hour))}
	if len(terms.Roles) == 0 {
		terms.Roles = []bourse.Role{bourse.RoleWorker}
	}
	switch {
	case slices.ContainsFunc(terms.Roles, func(role bourse.Role) bool { return !slices.Contains(bourse.ServerRoles(), role) }):
		return bourse.Errorf(bourse.CodeInvalid, "roles: use worker, broker and proxy")
	case terms.Region != "" && terms.Region.Validate() != nil:
		return terms.Region.Validate()
	case terms.Uses < 1 || terms.Uses > maxJoinUses:
		return bourse.Errorf(bourse.CodeInvalid, "uses %d: use 1 to %d", terms.Uses, maxJoinUses)
	case in.TTL < 0 || time.Duration(in.TTL) > maxJoinTTL:
		return bourse.Errorf(bourse.CodeInvalid, "ttl %s: use at most %s", time.Duration(in.TTL), maxJoinTTL)
	}
	i, text, err := h.Invitations.Make(terms, now)
	if err != nil {
		return err
	}
	r.Note(slog.String("join_token", i.ID), slog.Any("roles", i.Roles), slog.Int("uses", i.Uses))
	out := showJoinToken(&i)
	out.Token = text
	return endpoint.WriteJSON(w, http.StatusCreated, out)
}

func (h *joinTokenHandler) list(w http.ResponseWriter, _ *endpoint.Request) error {
	if err := h.errDisabled(); err != nil {
		return err
	}
	out := machinesapi.JoinTokenList{JoinTokens: []machinesapi.JoinToken{}}
	for _, i := range h.Invitations.List() {
		out.JoinTokens = append(out.JoinTokens, showJoinToken(&i))
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

func (h *joinTokenHandler) revoke(w http.ResponseWriter, r *endpoint.Request) error {
	if err := h.errDisabled(); err != nil {
		return err
	}
	if err := h.Invitations.Revoke(r.PathValue("token")); err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, struct{}{})
}

// errDisabled returns the reason why this broker cannot create join tokens, or nil if it can.
func (h *joinTokenHandler) errDisabled() error {
	if h.Invitations == nil {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "this broker cannot sign certificates: it needs issuer.pem in --credentials, and --data")
	}
	return nil
}

func showJoinToken(i *enroll.Issued) machinesapi.JoinToken {
	out := machinesapi.JoinToken{ID: i.ID, Roles: i.Roles, Region: i.Region, Uses: i.Uses, CreatedAt: i.Made, ExpiresAt: i.Expires, Hosts: []machinesapi.JoinedHost{}}
	for _, u := range i.Used {
		out.Hosts = append(out.Hosts, machinesapi.JoinedHost{Host: u.Host, At: u.At})
	}
	return out
}
