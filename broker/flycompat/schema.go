package flycompat

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// queries returns the root object of queries.
func queries(c *caller) object {
	var known appCache
	return object{
		typename: "Query",
		"app": resolver(func(ctx context.Context, args arguments) (any, error) {
			return known.find(ctx, c, bourse.AppName(args.text("name")))
		}),
		"appNameAvailable":     resolver(c.nameAvailable),
		"apps":                 resolver(c.apps),
		"machine":              resolver(c.machine),
		"volume":               resolver(c.volume),
		"organization":         resolver(c.organization),
		"organizations":        resolver(c.organizations),
		"personalOrganization": resolver(c.personalOrganization),
		"viewer":               resolver(c.viewer),
		"platform":             resolver(c.platform),
		"nearestRegion":        resolver(c.nearestRegion),
		"latestImageDetails":   resolver(latestImageDetails),
		"canPerformBluegreenDeployment": resolver(func(ctx context.Context, args arguments) (any, error) {
			_, err := known.find(ctx, c, bourse.AppName(args.text("name")))
			return err == nil, err
		}),
		"addOn":  nil,
		"addOns": none(),
	}
}

// mutations returns the root object for GraphQL mutations. It has few fields, because clients make changes through
// the Machines API. addWireGuardPeer always fails, which clients tolerate.
func mutations() object {
	return object{
		typename:                 "Mutation",
		"validateWireGuardPeers": object{"invalidPeerIps": []any{}},
		"addWireGuardPeer": resolver(func(context.Context, arguments) (any, error) {
			return nil, bourse.Errorf(bourse.CodeNotFound, "Bourse has no WireGuard gateway: use bourse machine exec -it and bourse machine forward")
		}),
	}
}

// nodes returns a GraphQL connection that contains the whole list on one page.
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

// none returns an empty connection, for kinds of objects that Bourse does not have.
func none() object { return nodes(nil) }

var onlyPage = object{"hasNextPage": false, "endCursor": ""}

// viewer resolves the user to whom the token belongs. Bourse knows only the user's name.
func (c *caller) viewer(ctx context.Context, _ arguments) (any, error) {
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	return object{
		typename: "User", "id": token.User, "name": token.User, "email": token.User, "enablePaidHobby": false, "featureFlags": []any{},
		"organizations": resolver(c.organizations), "personalOrganization": resolver(c.personalOrganization),
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

// nearestRegion resolves the region nearest to the broker, or the first region if no locations are known. The result is
// never null, because flyctl's agent does not check for null.
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

// latestImageDetails always fails, because Bourse does not look for newer images. Clients ignore an
// error that begins with "Unknown repository".
func latestImageDetails(_ context.Context, args arguments) (any, error) {
	return nil, bourse.Errorf(bourse.CodeNotFound, "Unknown repository %s: Bourse does not look for newer images", bourse.Quoted(args.text("image")))
}
