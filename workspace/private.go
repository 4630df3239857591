package workspace

import (
	"bytes"
	"path"
	"regexp"
	"strings"
)

// Private reports why a file at this path may hold what is meant for no one else, as far as its name shows; "" if it
// does not. look: it does if its content has a key or a password in it. Letters are compared without regard to case.
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

// isExample reports whether the end of a name reports that the file is there to be copied and filled in.
func isExample(suffix string) bool {
	for _, word := range []string{"example", "sample", "template", "dist", "defaults"} {
		if strings.Contains(suffix, word) {
			return true
		}
	}
	return false
}

// maxHead is how much of a file is looked at for a key: what comes before one in a bundle with certificates.
const maxHead = 64 << 10

// holds describes what of a key or a password there is in a text.
func holds(text []byte) string {
	switch {
	case bytes.Contains(text, []byte("PRIVATE KEY-----")), bytes.HasPrefix(text, []byte("PuTTY-User-Key-File-")):
		return "it holds a private key"
	case gitPassword.Match(text):
		return "it holds a password or a token for a repository"
	}
	return ""
}

// gitPassword is what CI systems and people leave in a repository's configuration.
var gitPassword = regexp.MustCompile(`(?i)extraheader\s*=\s*authorization|url\s*=\s*https?://[^/\s:@]*:[^/\s@]+@`)

// privateFiles are names of files that hold credentials wherever they are.
var privateFiles = map[string]string{
	".env": "programs keep credentials there", ".envrc": "direnv keeps credentials there", ".netrc": "curl and git keep passwords there", "_netrc": "curl and git keep passwords there",
	".git-credentials": "git keeps passwords there", ".npmrc": "npm keeps tokens there", ".pypirc": "Python's uploads keep tokens there",
	".pgpass": "PostgreSQL keeps passwords there", ".my.cnf": "MySQL keeps passwords there", ".mylogin.cnf": "MySQL keeps passwords there", ".htpasswd": "it holds hashes of passwords",
	"id_rsa": "it is a private key", "id_dsa": "it is a private key", "id_ecdsa": "it is a private key", "id_ed25519": "it is a private key",
	"id_ecdsa_sk": "it is a private key", "id_ed25519_sk": "it is a private key",
	"kubeconfig": "Kubernetes keeps credentials there", ".dockercfg": "Docker keeps passwords there", ".vault-token": "it is a token of Vault's", ".terraformrc": "Terraform keeps tokens there",
	"terraform.tfstate": "Terraform keeps values of secrets there", "terraform.tfvars": "Terraform reads values of secrets from it",
	".s3cfg": "s3cmd keeps keys there", ".boto": "gsutil keeps keys there", "application_default_credentials.json": "Google's programs keep credentials there",
	".rclone.conf": "rclone keeps credentials there", "rclone.conf": "rclone keeps credentials there", ".msmtprc": "msmtp keeps passwords there", "auth.json": "Composer keeps tokens there",
	".bash_history": "what was typed may hold credentials", ".zsh_history": "what was typed may hold credentials", ".python_history": "what was typed may hold credentials", ".psql_history": "what was typed may hold credentials",
}

// privateIn are files that hold credentials in a folder of that name.
var privateIn = map[string]string{
	".docker/config.json": "Docker keeps passwords there", ".kube/config": "Kubernetes keeps credentials there", ".m2/settings.xml": "Maven keeps passwords there",
	".cargo/credentials": "cargo keeps tokens there", ".cargo/credentials.toml": "cargo keeps tokens there", ".gem/credentials": "RubyGems keeps tokens there",
	"gh/hosts.yml": "GitHub's program keeps tokens there", ".gradle/gradle.properties": "Gradle keeps passwords there", ".bundle/config": "Bundler keeps passwords there",
}

// privateFolders are names of folders in which all files may be private.
var privateFolders = map[string]string{
	".ssh": "ssh keeps keys there", ".gnupg": "GnuPG keeps keys there", ".aws": "AWS's programs keep keys there", ".azure": "Azure's programs keep tokens there",
	"gcloud": "Google's programs keep credentials there", ".password-store": "pass keeps passwords there",
}

// privateSuffixes end the names of files that hold keys.
var privateSuffixes = map[string]string{
	".p12": "it holds a private key", ".pfx": "it holds a private key", ".jks": "it holds private keys", ".keystore": "it holds private keys",
	".ppk": "it is a private key", ".kdbx": "it holds passwords", ".ovpn": "it holds the key of a network",
}
