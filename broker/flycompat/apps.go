package flycompat

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// appCache caches the apps that a query has resolved, because clients select the same app several times under different
// aliases.
type appCache map[bourse.AppName]object

// find returns an app's object, from the cache if it has already been resolved. Errors: not_found, with the text that
// clients look for.
func (m *appCache) find(ctx context.Context, c *caller, name bourse.AppName) (any, error) {
	if known, ok := (*m)[name]; ok {
		return known, nil
	}
	a, err := c.appOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if *m == nil {
		*m = appCache{}
	}
	(*m)[name] = c.shownApp(&a)
	return (*m)[name], nil
}

func (c *caller) appOf(ctx context.Context, name bourse.AppName) (machinesapi.App, error) {
	if name == "" {
		return machinesapi.App{}, bourse.Errorf(bourse.CodeInvalid, "the query does not specify an app")
	}
	if name.Validate() != nil {
		return machinesapi.App{}, bourse.Errorf(bourse.CodeNotFound, "Could not find App %s", bourse.Quoted(string(name)))
	}
	a, err := c.App(ctx, name)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		err = &bourse.Error{Code: bourse.CodeNotFound, Message: "Could not find App " + bourse.Quoted(string(name)), Err: err}
	}
	return a, err
}

// nameAvailable reports whether an app name is still available.
func (c *caller) nameAvailable(ctx context.Context, args arguments) (any, error) {
	_, err := c.appOf(ctx, bourse.AppName(args.text("name")))
	code := bourse.CodeOf(err)
	if code == bourse.CodeNotFound || code == bourse.CodeForbidden {
		err = nil
	}
	return code == bourse.CodeNotFound, err
}

// maxPage is the maximum number of apps on a page.
const maxPage = 1000

// apps resolves a page of the apps that the caller may use, sorted by name. Bourse has no app roles, so filtering by
// role returns no apps.
func (c *caller) apps(ctx context.Context, args arguments) (any, error) {
	if args.text("role") != "" {
		return none(), nil
	}
	all, err := c.Apps(ctx, args.text("organizationId"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y machinesapi.App) int { return cmp.Compare(x.Name, y.Name) })
	after := bourse.AppName(args.text("after"))
	all = slices.DeleteFunc(all, func(a machinesapi.App) bool { return a.Name <= after })
	page := all[:min(len(all), max(1, args.count("first", maxPage, maxPage)))]
	list := make([]object, len(page))
	for i := range page {
		list[i] = c.shownApp(&page[i])
		list[i]["currentRelease"] = nil // would require a call for each app
	}
	out := nodes(list)
	if len(page) < len(all) {
		out["pageInfo"] = object{"hasNextPage": true, "endCursor": page[len(page)-1].Name}
	}
	return out, nil
}

// shownApp converts an app to a GraphQL object. The object's id is the app's name, as clients
// expect.
func (c *caller) shownApp(a *machinesapi.App) object {
	name := a.Name
	deployed := a.Status != machinesapi.AppPending
	return object{
		typename: "App", "id": name, "internalNumericId": a.NumericID, "name": name, "hostname": string(name) + ".internal", "cnameTarget": "",
		"appUrl": nil, "deployed": deployed, "network": a.Network, "status": a.Status, "platformVersion": "machines", "role": nil,
		"organization": shownOrganization(a.Organization), "version": 0,
		"services": []any{}, "sharedIpAddress": "", "ipAddresses": none(), "egressIpAddresses": none(), "addOns": none(),
		"certificates": none(), "secrets": []any{}, "currentLock": nil, "imageDetails": object{},
		"currentRelease":            resolver(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }),
		"currentReleaseUnprocessed": resolver(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }),
		// The release's GraphQL object includes the app's configuration.
		"config":              resolver(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }),
		"releases":            resolver(func(ctx context.Context, args arguments) (any, error) { return c.releasesOf(ctx, name, args) }),
		"releasesUnprocessed": resolver(func(ctx context.Context, args arguments) (any, error) { return c.releasesOf(ctx, name, args) }),
		"image":               resolver(func(ctx context.Context, args arguments) (any, error) { return c.image(ctx, name, args.text("ref")) }),
		"machines": resolver(func(ctx context.Context, _ arguments) (any, error) {
			list, _, err := c.Machines(ctx, name, machinesapi.ListMachines{})
			return nodes(shownMachines(list)), err
		}),
		"volumes": resolver(func(ctx context.Context, _ arguments) (any, error) {
			list, _, err := c.Volumes(name).List(ctx)
			return nodes(shownVolumes(list)), err
		}),
		"regions": resolver(func(ctx context.Context, _ arguments) (any, error) {
			all, err := c.platform(ctx, nil)
			if err != nil {
				return nil, err
			}
			return all.(object)["regions"], nil
		}),
	}
}

// image resolves an image reference. The result is null if the image is not found; clients then tell the user. An
// image's size is unknown until the image is pulled.
func (c *caller) image(ctx context.Context, app bourse.AppName, ref string) (any, error) {
	found, err := c.Client.AppImages(app).Resolve(ctx, ref)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil //nolint:nilnil // null
	}
	if err != nil {
		return nil, err
	}
	if name := machinesapi.ImageName(ref); bourse.KindOfImage(name) != bourse.RegistryImage {
		ref = name
	}
	return object{
		typename: "Image", "id": cmp.Or(found.Digest, ref), "digest": found.Digest, "ref": ref, "compressedSize": "0", "compressedSizeFull": "0", "manifest": nil,
	}, nil
}
