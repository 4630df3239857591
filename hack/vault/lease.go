package main

import (
	"context"
	"crypto/rand"

	"github.com/hashicorp/vault/sdk/framework"
	"github.com/hashicorp/vault/sdk/logical"
)

// leaseFactory makes the dynamic engine: a database secrets engine without a database.
// Users whose lease has not ended are in its storage; Vault's expiration manager calls
// revoke, as for every engine. The mount's settings default_lease_ttl and max_lease_ttl
// limit a lease.
func leaseFactory(ctx context.Context, c *logical.BackendConfig) (logical.Backend, error) {
	user := &framework.Secret{
		Type:   "user",
		Fields: map[string]*framework.FieldSchema{"username": {Type: framework.TypeString}},
		Renew:  framework.LeaseExtend(0, 0, c.System),
		Revoke: revokeUser,
	}
	b := &framework.Backend{BackendType: logical.TypeLogical, Secrets: []*framework.Secret{user}}
	b.Paths = []*framework.Path{{
		Pattern: "creds/" + framework.GenericNameRegex("name"),
		Fields:  map[string]*framework.FieldSchema{"name": {Type: framework.TypeString}},
		Operations: map[logical.Operation]framework.OperationHandler{
			logical.ReadOperation: &framework.PathOperation{
				Callback: func(ctx context.Context, r *logical.Request, d *framework.FieldData) (*logical.Response, error) {
					return newUser(ctx, r, user, d.Get("name").(string))
				},
			},
		},
	}, {
		Pattern: "users/?$",
		Operations: map[logical.Operation]framework.OperationHandler{
			logical.ListOperation: &framework.PathOperation{Callback: listUsers},
		},
	}}
	return b, b.Setup(ctx, c)
}

func newUser(ctx context.Context, r *logical.Request, user *framework.Secret, role string) (*logical.Response, error) {
	name := role + "-" + rand.Text()
	if err := r.Storage.Put(ctx, &logical.StorageEntry{Key: "users/" + name}); err != nil {
		return nil, err
	}
	return user.Response(
		map[string]any{"username": name, "password": name + ":" + rand.Text(), "port": 5432},
		map[string]any{"username": name},
	), nil
}

func revokeUser(ctx context.Context, r *logical.Request, _ *framework.FieldData) (*logical.Response, error) {
	name, _ := r.Secret.InternalData["username"].(string)
	return nil, r.Storage.Delete(ctx, "users/"+name)
}

func listUsers(ctx context.Context, r *logical.Request, _ *framework.FieldData) (*logical.Response, error) {
	names, err := r.Storage.List(ctx, "users/")
	if err != nil {
		return nil, err
	}
	return logical.ListResponse(names), nil
}
