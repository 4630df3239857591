package workspace

import (
	"bytes"
	"path"
	"regexp"
	"strings"
)

// Private returns why the name of a file suggests that it contains credentials or private data; "" if it does not. If look
// is set, the file's content decides: it must be searched for a key or a password. Private ignores case.
func Private(name string) (why string, look bool) {
	parts := strings.Split(strings.ToLower(path.Clean(name)), "/")
	base := parts[len(parts)-1]
	if why := privateFiles[base]; why != "" {
		return why, false
	}
	if rest, ok := strings.CutPrefix(base, ".env."); ok && !isExample(rest) {
		return privateFiles[".env"], false
	}
	for i, part := range parts[:len(parts)-1] {
		if why := privateFolders[part]; why != "" {
			return why, false
		}
		if i == len(parts)-2 && privateIn[part+"/"+base] != "" {
			return privateIn[part+"/"+base], false
		}
	}
	suffix := path.Ext(base)
	if why := privateSuffixes[suffix]; why != "" {
		return why, false
	}
	return "", suffix == ".pem" || strings.HasSuffix(path.Clean(name), ".git/config") || strings.Contains(base, "key") || strings.Contains(base, "_rsa")
}

// isExample reports whether the end of a name marks the file as an example without real values.
func isExample(suffix string) bool {
	for _, word := range []string{"example", "sample", "template", "dist", "defaults"} {
		if strings.Contains(suffix, word) {
			return true
		}
	}
	return false
}

// maxHead is the number of bytes at the beginning of a file that are searched for a key. A bundle can have certificates before it.
const maxHead = 64 << 10

// findKey returns a description of the key or password that a text contains, or "".
func findKey(text []byte) string {
	switch {
	case bytes.Contains(text, []byte("PRIVATE KEY-----")), bytes.HasPrefix(text, []byte("PuTTY-User-Key-File-")):
		return "it contains a private key"
	case gitPassword.Match(text):
		return "it contains a password or a token for a repository"
	}
	return ""
}

// gitPassword matches credentials that CI systems and users write to a repository's configuration.
var gitPassword = regexp.MustCompile(`(?i)extraheader\s*=\s*authorization|url\s*=\s*https?://[^/\s:@]*:[^/\s@]+@`)

// privateFiles are names of files that contain credentials in any directory.
var privateFiles = map[string]string{
	".env": "programs keep credentials there", ".envrc": "direnv keeps credentials there", ".netrc": "curl and git keep passwords there", "_netrc": "curl and git keep passwords there",
	".git-credentials": "git keeps passwords there", ".npmrc": "npm keeps tokens there", ".pypirc": "Python's uploads keep tokens there",
	".pgpass": "PostgreSQL keeps passwords there", ".my.cnf": "MySQL keeps passwords there", ".mylogin.cnf": "MySQL keeps passwords there", ".htpasswd": "it contains hashes of passwords",
	"id_rsa": "it is a private key", "id_dsa": "it is a private key", "id_ecdsa": "it is a private key", "id_ed25519": "it is a private key",
	"id_ecdsa_sk": "it is a private key", "id_ed25519_sk": "it is a private key",
	"kubeconfig": "Kubernetes keeps credentials there", ".dockercfg": "Docker keeps passwords there", ".vault-token": "it is a token of Vault's", ".terraformrc": "Terraform keeps tokens there",
	"terraform.tfstate": "Terraform keeps values of secrets there", "terraform.tfvars": "Terraform reads values of secrets from it",
	".s3cfg": "s3cmd keeps keys there", ".boto": "gsutil keeps keys there", "application_default_credentials.json": "Google's programs keep credentials there",
	".rclone.conf": "rclone keeps credentials there", "rclone.conf": "rclone keeps credentials there", ".msmtprc": "msmtp keeps passwords there", "auth.json": "Composer keeps tokens there",
	".bash_history": "what was typed may hold credentials", ".zsh_history": "what was typed may hold credentials", ".python_history": "what was typed may hold credentials", ".psql_history": "what was typed may hold credentials",
}

// privateIn are files that contain credentials in a directory of this name.
var privateIn = map[string]string{
	".docker/config.json": "Docker keeps passwords there", ".kube/config": "Kubernetes keeps credentials there", ".m2/settings.xml": "Maven keeps passwords there",
	".cargo/credentials": "cargo keeps tokens there", ".cargo/credentials.toml": "cargo keeps tokens there", ".gem/credentials": "RubyGems keeps tokens there",
	"gh/hosts.yml": "GitHub's program keeps tokens there", ".gradle/gradle.properties": "Gradle keeps passwords there", ".bundle/config": "Bundler keeps passwords there",
}

// privateFolders are names of directories in which all files may be private.
var privateFolders = map[string]string{
	".ssh": "ssh keeps keys there", ".gnupg": "GnuPG keeps keys there", ".aws": "AWS's programs keep keys there", ".azure": "Azure's programs keep tokens there",
	"gcloud": "Google's programs keep credentials there", ".password-store": "pass keeps passwords there",
}

// privateSuffixes are suffixes of the names of files that contain keys.
var privateSuffixes = map[string]string{
	".p12": "it contains a private key", ".pfx": "it findKey a private key", ".jks": "it findKey private keys", ".keystore": "it findKey private keys",
	".ppk": "it is a private key", ".kdbx": "it contains passwords", ".ovpn": "it findKey the key of a network",
}
