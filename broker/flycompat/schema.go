package flycompat

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// queries has the fields that a query may ask for.
func queries(c *caller) object {
	var known appMemory
	return object{
		typename: "Query",
		"app": finder(func(ctx context.Context, args arguments) (any, error) {
			return known.find(ctx, c, bourse.AppName(args.text("name")))
		}),
		"appNameAvailable":     finder(c.nameAvailable),
		"apps":                 finder(c.apps),
		"machine":              finder(c.machine),
		"volume":               finder(c.volume),
		"organization":         finder(c.organization),
		"organizations":        finder(c.organizations),
		"personalOrganization": finder(c.personalOrganization),
		"viewer":               finder(c.viewer),
		"platform":             finder(c.platform),
		"nearestRegion":        finder(c.nearestRegion),
		"latestImageDetails":   finder(latestImageDetails),
		"canPerformBluegreenDeployment": finder(func(ctx context.Context, args arguments) (any, error) {
			_, err := known.find(ctx, c, bourse.AppName(args.text("name")))
			return err == nil, err
		}),
		"addOn":  nil,
		"addOns": none(),
	}
}

// mutations has the fields that a mutation may ask for. Clients change things by the
// Machines API; of this one, they go on without an answer.
func mutations() object {
	return object{
		typename:                 "Mutation",
		"validateWireGuardPeers": object{"invalidPeerIps": []any{}},
		"addWireGuardPeer": finder(func(context.Context, arguments) (any, error) {
			return nil, bourse.Errorf(bourse.CodeNotFound, "Bourse has no WireGuard gateway: use bourse machine exec -it and bourse machine forward")
		}),
	}
}

// nodes is a list as GraphQL has it, on one page.
func nodes(list []object) object {
	if list == nil {
		list = []object{}
	}
	edges := make([]object, len(list))
	for i, o := range list {
		edges[i] = object{"cursor": "", "node": o}
	}
	return object{"nodes": list, "edges": edges, "totalCount": len(list), "pageInfo": onlyPage}
}

// none is a list of what Bourse does not have.
func none() object { return nodes(nil) }

var onlyPage = object{"hasNextPage": false, "endCursor": ""}

// viewer is the owner of a token: a name, no person, as far as Bourse knows.
func (c *caller) viewer(ctx context.Context, _ arguments) (any, error) {
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	return object{
		typename: "User", "id": token.User, "name": token.User, "email": token.User, "enablePaidHobby": false, "featureFlags": []any{},
		"organizations": finder(c.organizations), "personalOrganization": finder(c.personalOrganization),
	}, nil
}

func (c *caller) platform(ctx context.Context, _ arguments) (any, error) {
	all, err := c.Regions(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]object, len(all.Regions))
	for i := range all.Regions {
		list[i] = shownRegion(&all.Regions[i])
	}
	return object{"requestRegion": all.Nearest, "regions": list, "vmSizes": []any{}}, nil
}

// nearestRegion finds the region that is nearest to the broker, or the first one
// if their places are not known. It is never null, because flyctl's agent reads
// its code without a check.
func (c *caller) nearestRegion(ctx context.Context, _ arguments) (any, error) {
	all, err := c.Regions(ctx)
	if err != nil {
		return nil, err
	}
	if len(all.Regions) == 0 {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "no region has a worker")
	}
	nearest := max(0, slices.IndexFunc(all.Regions, func(r machinesapi.Region) bool { return r.Code == all.Nearest }))
	return shownRegion(&all.Regions[nearest]), nil
}

func shownRegion(r *machinesapi.Region) object {
	return object{
		"name": r.Name, "code": r.Code, "latitude": r.Latitude, "longitude": r.Longitude,
		"gatewayAvailable": false, "requiresPaidPlan": false, "deprecated": false,
	}
}

// latestImageDetails has no answer: Bourse does not know which images follow
// others. Clients do not mind this text.
func latestImageDetails(_ context.Context, args arguments) (any, error) {
	return nil, bourse.Errorf(bourse.CodeNotFound, "Unknown repository %s: Bourse does not look for newer images", bourse.Quoted(args.text("image")))
}
