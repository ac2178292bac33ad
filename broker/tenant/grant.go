package tenant

import (
	"cmp"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// grantOf returns the record of a new token with the requested permissions, which must not exceed the caller's
// permissions. Errors: invalid; forbidden; not_found (an app or a machine); unavailable.
func (h *Tokens) grantOf(r *endpoint.Request, in *machinesapi.CreateToken) (inventory.Token, error) {
	g := inventory.Token{
		Name: cmp.Or(in.Name, "token"), ReadOnly: in.ReadOnly, Machines: in.Machines,
		MadeBy: r.Who.Name, MadeWith: r.Who.Token, CreatedAt: h.Now().UTC(),
	}
	if err := checkName(g.Name); err != nil {
		return g, err
	}
	var err error
	if g.ExpiresAt, err = expiry(g.CreatedAt, time.Duration(in.Expiry), r.Who.Until); err != nil {
		return g, err
	}
	if g.Org, g.Apps, err = h.scope(r, in); err != nil {
		return g, err
	}
	return g, h.checkMachines(r, &g)
}

// scope returns the organization and the apps that a new token is valid for.
func (h *Tokens) scope(r *endpoint.Request, in *machinesapi.CreateToken) (org string, refs []bourse.AppRef, err error) {
	names := in.Apps
	if len(names) == 0 && in.Org == "" {
		for _, ref := range r.Who.Apps { // by default, the token is valid for all of the caller's apps
			names = append(names, ref.Name)
		}
	}
	if len(names) > maxListed {
		return "", nil, bourse.Errorf(bourse.CodeInvalid, "%d apps exceed the limit of %d: create a token for the whole organization", len(names), maxListed)
	}
	if len(names) == 0 {
		org, err = orgOf(&r.Who, in.Org)
		return org, nil, err
	}
	org = in.Org
	for _, name := range names {
		if err := name.Validate(); err != nil {
			return "", nil, err
		}
		app, err := h.Gate.Usable(r, name)
		if err != nil {
			return "", nil, err
		}
		if org = cmp.Or(org, app.Org); app.Org != org {
			return "", nil, bourse.Errorf(bourse.CodeInvalid, "app %s does not belong to organization %s: all of a token's apps must belong to one organization", name, bourse.Quoted(org))
		}
		if ref := (bourse.AppRef{Name: app.Name, ID: app.ID}); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return org, refs, nil
}

// orgOf returns the organization of a new token if the token is to be valid for all of the organization's apps.
func orgOf(who *endpoint.Identity, asked string) (string, error) {
	org := cmp.Or(asked, who.Org)
	switch {
	case org == "":
		return "", bourse.Errorf(bourse.CodeInvalid, `specify apps, an organization, or org_slug "*" for the whole cluster`)
	case org == endpoint.Everything && !who.Cluster(), org != endpoint.Everything && !who.May(bourse.App{Org: org}):
		return "", endpoint.ErrForbidden()
	case org != endpoint.Everything && bourse.AppName(org).Validate() != nil:
		// Organization names follow the same rules as app names.
		return "", bourse.Errorf(bourse.CodeInvalid, "invalid org_slug %s", bourse.Quoted(org))
	}
	return org, nil
}

// Limits for a token.
const (
	maxTokenName = 64  // in bytes
	maxListed    = 256 // maximum number of apps, and of machines
	maxExpiry    = 100 * 365 * 24 * time.Hour
)

// checkName checks that a token's name is short and safe to print.
func checkName(name string) error {
	first, _ := utf8.DecodeRuneInString(name)
	ok := len(name) <= maxTokenName && utf8.ValidString(name) && (unicode.IsLetter(first) || unicode.IsDigit(first)) && name[len(name)-1] != ' '
	for _, c := range name {
		ok = ok && unicode.IsPrint(c)
	}
	if !ok {
		return bourse.Errorf(bourse.CodeInvalid, "invalid name %s: use up to %d bytes of printable characters, beginning with a letter or digit", bourse.Quoted(name), maxTokenName)
	}
	return nil
}

// expiry returns the time when a new token expires, or the zero time if it never does. A new token cannot outlive the
// token that was used to create it.
func expiry(now time.Time, after time.Duration, until time.Time) (time.Time, error) {
	switch {
	case after == 0:
		return until, nil
	case after < time.Second || after > maxExpiry:
		return time.Time{}, bourse.Errorf(bourse.CodeInvalid, "invalid expiry %s: use 1s to %s", after, maxExpiry)
	}
	at := now.Add(after)
	if !until.IsZero() && at.After(until) {
		return at, bourse.Errorf(bourse.CodeInvalid, "invalid expiry %s: your own token expires at %s", after, until.Format(time.RFC3339))
	}
	return at, nil
}

// checkMachines checks that a token that is limited to machines is valid for exactly one app, and
// that the machines belong to that app. Errors: invalid, not_found, unavailable.
func (h *Tokens) checkMachines(r *endpoint.Request, g *inventory.Token) error {
	switch {
	case len(g.Machines) == 0:
		return nil
	case len(g.Apps) != 1:
		return bourse.Errorf(bourse.CodeInvalid, "a machine token requires exactly one app: specify it")
	case len(g.Machines) > maxListed:
		return bourse.Errorf(bourse.CodeInvalid, "%d machines exceed the limit of %d: create a token for the whole app", len(g.Machines), maxListed)
	}
	for _, id := range g.Machines {
		if err := id.Validate(); err != nil {
			return err
		}
	}
	app, err := h.Gate.Usable(r, g.Apps[0].Name)
	if err != nil {
		return err
	}
	for _, id := range g.Machines {
		has, err := h.Machines.Has(r.Context(), &app, id)
		if err == nil && !has {
			err = bourse.Errorf(bourse.CodeNotFound, "app %s has no machine %s", app.Name, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayRevoke reports whether the caller may list and revoke the token g. If the caller's token was
// created through the API and is limited to apps, it can revoke only itself and tokens that were
// created with it. A stolen token therefore cannot be used to revoke other tokens.
func mayRevoke(who *endpoint.Identity, g *inventory.Token) bool {
	switch {
	case who.Cluster() || who.Token != "" && (g.ID == who.Token || g.MadeWith == who.Token):
		return true
	case who.Org != g.Org:
		return false
	case len(who.Apps) == 0:
		return true
	}
	return who.Token == "" && len(g.Apps) > 0 && !slices.ContainsFunc(g.Apps, func(ref bourse.AppRef) bool {
		return !who.May(bourse.App{Name: ref.Name, ID: ref.ID, Org: g.Org})
	})
}
