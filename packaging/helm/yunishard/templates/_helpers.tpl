{{- define "yunishard.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A value as a text: Helm reads numbers of files as floats, and would write 1e+06. */ -}}
{{- define "yunishard.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{- /* The user of the shim, for whom the settings make no exception. */ -}}
{{- define "yunishard.shimUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ .Release.Name }}-shim
{{- end }}

{{- /* The expression for whether who sends a request may name another user, by the settings of the chart. */ -}}
{{- define "yunishard.trusted" -}}
{{- $config := .Values.config }}
{{- $key := "admissionController.accessControl." }}
{{- $true := list "1" "t" "T" "TRUE" "true" "True" }}
{{- if has (toString (index $config (printf "%sbypassAuth" $key))) $true }}true{{ else }}
{{- $trust := "true" }}
{{- if hasKey $config (printf "%strustControllers" $key) }}{{ $trust = toString (index $config (printf "%strustControllers" $key)) }}{{ end }}
{{- $controllers := ternary "" "request.resource.resource == 'replicasets' && " (has $trust $true) }}
{{- $all := list }}
{{- $systemUsers := "^system:serviceaccount:kube-system:" }}
{{- if hasKey $config (printf "%ssystemUsers" $key) }}{{ $systemUsers = index $config (printf "%ssystemUsers" $key) }}{{ end }}
{{- range splitList "," $systemUsers }}{{ with trim . }}
{{- $all = append $all (printf "%srequest.userInfo.?username.orValue('').matches(%s)" $controllers (mustToRawJson .)) }}
{{- end }}{{ end }}
{{- range splitList "," (index $config (printf "%sexternalUsers" $key) | default "") }}{{ with trim . }}
{{- $all = append $all (printf "request.userInfo.?username.orValue('').matches(%s)" (mustToRawJson .)) }}
{{- end }}{{ end }}
{{- range splitList "," (index $config (printf "%sexternalGroups" $key) | default "") }}{{ with trim . }}
{{- $all = append $all (printf "request.userInfo.?groups.orValue([]).exists(g, g.matches(%s))" (mustToRawJson .)) }}
{{- end }}{{ end }}
{{- $all = append $all (printf "request.userInfo.?username.orValue('') == %s" (include "yunishard.shimUser" . | toRawJson)) }}
{{- join " || " $all }}
{{- end }}
{{- end }}

{{- define "yunishard.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The labels by which the pods of a component are selected: (list . "scheduler"). */ -}}
{{- define "yunishard.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* What all pods have in common. */ -}}
{{- define "yunishard.pod" -}}
schedulerName: default-scheduler
automountServiceAccountToken: false
# Variables such as YUNISHARD_PORT would look like settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
priorityClassName: {{ include "yunishard.priorityClass" . }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  # How long the pod stays on a node that has failed. Kubernetes would wait for 300 s.
  {{- /* Values of an earlier release, with --reuse-values, do not have it. */ -}}
  {{- $seconds := get .Values "nodeFailureTolerationSeconds" | toString | default "30" }}
  {{- range list "not-ready" "unreachable" }}
  - {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $seconds }}}
  {{- end }}
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "yunishard.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "yunishard.priorityClass" -}}
{{ .Values.priorityClassName | default .Release.Name }}
{{- end }}

{{- /* What the containers of the core have in common. */ -}}
{{- define "yunishard.coreFiles" -}}
env:
  - name: YUNISHARD_SETTINGS
    value: /etc/yunishard/settings/settings.yaml
  {{- if .Values.core.storeSecret }}
  - name: PGPASSFILE
    value: /run/yunishard/pgpass
  {{- end }}
  {{- with .Values.core.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.core.resources | nindent 2 }}
{{ include "yunishard.confined" . }}
volumeMounts:
  - {name: settings, mountPath: /etc/yunishard/settings, readOnly: true}
  - {name: state, mountPath: /var/lib/yunishard}
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.core.restTlsSecret }}
  - {name: tls, mountPath: /etc/yunishard/tls, readOnly: true}
  {{- end }}
  {{- if .Values.core.storeSecret }}
  - {name: database, mountPath: /etc/yunishard/database, readOnly: true}
  - {name: run, mountPath: /run/yunishard}
  {{- end }}
  {{- with .Values.core.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "yunishard.namespaceVariable" -}}
- name: NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
{{- end }}

{{- /* The token of the service account, which only one container mounts. */ -}}
{{- define "yunishard.tokenVolume" -}}
- name: service-account
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}

{{- define "yunishard.tokenMount" -}}
- {name: service-account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
